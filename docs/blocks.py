#!/usr/bin/env python3
"""The fenced blocks and pictures of README and book: which are run, and whether the pages print what comes out.

    docs/blocks.py                           how many blocks there are of each kind, and why the others are not run
    docs/blocks.py --run --bin DIR --home DIR [--debug DIR] [--only WORD] [--write]
                                             runs them; `cargo xtask book` calls it so, when executables are built

A comment on the line before a block says what becomes of it:

    <!-- run -->                    each line is compared
    <!-- run: shape -->             numbers, and how wide columns are, do not count: for measured figures
    <!-- run: any order -->         lines come in any order: for ranks that print
    <!-- run: errors -->            standard error is part of the output, which it is not otherwise
    <!-- run: makes P from F -->    the file F that the block makes is the file P of the page's folder (F: P's name)
    <!-- file: F -->                the block is the file F of the blocks that follow on the page
    <!-- not run: WHY -->           it is not run
    <!-- picture: WHO -->           before a picture that no block makes: the command that does
    <!-- values:                    before a table: each number in it, but those of the first row and column, and of columns
    $ COMMAND                       whose heading has a `/`, is a number that the commands print, rounded as the table has it
    -->

Kinds are joined by commas. A block of `text` with arrows or lines in it is a drawing, and one that only includes a file is that file;
these need no comment. Lines that begin with `$ ` are commands, those below are their output. In output `…` stands for any text, a line
that begins with it for any lines, `… N more` for N of them. A command fails unless its status is 0 or the next one is `echo $?`.

All blocks of a page run in one folder, which looks like a checkout that is built: `target/release`, `tests`, `docs` are there. What one
exports the next ones have. `cargo` is a stand-in that takes what has been built: `run --release`, `build` and `xtask install --prefix $HOME/portolan`.
"""

import argparse
import collections
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.M | re.S
)
VALUES = re.compile(r"^<!-- values:\n(?P<text>.*?)^-->\n(?P<table>(?:\|[^\n]*\n)+)", re.M | re.S)
PICTURE = re.compile(r"^(?:<!-- picture: (?P<who>[^\n]+) -->\n)?!\[[^\]]*\]\((?P<file>[^)\s]+)\)", re.M)
DRAWN = re.compile("[─│╌┄═▶◀►◄▲▼→←┌└├]")
# One block; the whole book takes less than a minute.
LIMIT = 60
# Lines that are shown of a difference.
MOST = 40


def pages():
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs" / "src").rglob("*.md"))
    yield from sorted((ROOT / "docs" / "decisions").glob("*.md"))


class Block:
    """A fenced block and what its comment says."""

    def __init__(self, page, text, found):
        self.page, self.text, self.start, self.end = page, found["text"], found.start("text"), found.end("text")
        self.line = text.count("\n", 0, self.start)
        mark = found["mark"] or ""
        self.kind, _, self.what = (part.strip() for part in mark.partition(":"))
        if mark == "" or self.kind not in ("run", "file", "not run"):
            self.kind, self.what = self.unmarked(found["info"].split(",")[0].strip()), ""
        words = [word.strip() for word in self.what.split(",")] if self.kind == "run" and self.what else []
        self.makes = [word.removeprefix("makes ") for word in words if word.startswith("makes ")]
        self.shape, self.any_order, self.errors = "shape" in words, "any order" in words, "errors" in words
        self.unknown = [w for w in words if w not in ("shape", "any order", "errors") and not w.startswith("makes ")]

    def unmarked(self, info):
        if re.fullmatch(r"(\{\{#include [^}]+\}\}\n)+", self.text):
            return "included"
        if info == "text" and DRAWN.search(self.text) and not re.search(r"^\$ ", self.text, re.M):
            return "drawing"
        return ""

    def where(self):
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"

    def files(self):
        """What the block makes: the file of the page, and of the folder where it runs."""
        for makes in self.makes:
            kept, _, made = makes.partition(" from ")
            yield self.page.parent / kept, made or pathlib.PurePath(kept).name


def blocks(page):
    text = page.read_text()
    return [Block(page, text, found) for found in FENCE.finditer(text)]


class Values:
    """A table of numbers that commands print."""

    def __init__(self, page, text, found):
        self.page, self.line = page, text.count("\n", 0, found.start("table")) + 1
        self.commands = [line.removeprefix("$ ") for line in found["text"].splitlines()]
        rows = [[cell.strip() for cell in row.strip("|\n").split("|")] for row in found["table"].splitlines()]
        self.numbers = [
            cell.replace(",", "")
            for row in rows[2:]
            for heading, cell in zip(rows[0][1:], row[1:])
            if "/" not in heading and re.fullmatch(r"[\d,]+(\.\d+)?", cell)
        ]

    where = Block.where

    def wrong(self, printed):
        """Numbers of the table that are no rounding of what was printed."""
        for number in self.numbers:
            places = len(number.partition(".")[2])
            if not any(abs(float(p) - float(number)) <= 0.5 * 10**-places + 1e-9 for p in printed):
                yield f"nothing printed {number}"


def values(page):
    text = page.read_text()
    return [Values(page, text, found) for found in VALUES.finditer(text)]


def steps(text):
    """Commands of a block, each with its output on the page."""
    found, going_on = [], False
    for line in text.splitlines():
        if going_on:
            found[-1][0] += "\n" + line.removeprefix("> ")
        elif line.startswith("$ "):
            found.append([line[2:], []])
        elif found:
            found[-1][1].append(line.rstrip())
        else:
            raise ValueError(f"output before a command: {line}")
        going_on = (going_on or line.startswith("$ ")) and line.endswith("\\")
    return found


def problems(page):
    """What is wrong with a page, without running it."""
    here, text = blocks(page), page.read_text()
    if 2 * len(here) != len(re.findall(r"^ *(```|~~~)", text, re.M)):
        yield "a fence that neither begins nor ends a block"
    for block in here:
        if not block.kind:
            yield f"block of line {block.line} is neither run nor marked with a reason"
        elif block.kind != "drawing" and block.kind != "included" and block.kind != "run" and not block.what:
            yield f"block of line {block.line}: {block.kind}, and not what"
        for word in block.unknown:
            yield f"block of line {block.line}: no kind of run is called {word!r}"
        if block.kind == "file" and not any(b.kind == "run" and block.what in b.text for b in here):
            yield f"block of line {block.line}: no block of the page runs with the file {block.what}"
        if block.kind == "run":
            try:
                if not steps(block.text):
                    yield f"block of line {block.line} is run and has no command"
            except ValueError as wrong:
                yield f"block of line {block.line}: {wrong}"
    made = {file.resolve() for p in pages() for b in blocks(p) for file, _ in b.files()}
    for table in values(page):
        if not table.numbers:
            yield f"table of line {table.line} has no numbers"
    if len(values(page)) != len(re.findall(r"^<!-- values:", text, re.M)):
        yield "a comment of values and no table after it"
    for found in PICTURE.finditer(text):
        if not found["who"] and (page.parent / found["file"]).resolve() not in made:
            yield f"no block makes the picture {found['file']}, and no comment says what does"


def bare(line):
    """A line without its numbers and the width of its columns. Checksums, in hexadecimal, stay."""
    line = re.sub(r"(?<![\w.])\d+(\.\d+)?[KMG]?\b", "0", line)
    return re.sub(r"\s+", " ", re.sub(r"([═─])\1+", r"\1", line)).strip()


def same_line(expected, actual):
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, actual) is not None


def same(expected, actual):
    """Whether the lines are those of the page, in which `…` stands for others."""
    if not expected:
        return not actual
    first, rest = expected[0], expected[1:]
    if first.startswith("…"):
        number = re.match(r"… (\d+) more", first)
        for skipped in [int(number[1])] if number else range(len(actual) + 1):
            if skipped <= len(actual) and same(rest, actual[skipped:]):
                return True
        return False
    return bool(actual) and same_line(first, actual[0]) and same(rest, actual[1:])


def differs(block, expected, actual):
    """Whether output is not what the page says."""
    if block.shape:
        expected, actual = [bare(line) for line in expected], [bare(line) for line in actual]
    if not block.any_order:
        return not same(expected, actual)
    left = list(actual)
    for line in expected:
        if line.startswith("…"):
            continue
        match = next((other for other in left if same_line(line, other)), None)
        if match is None:
            return True
        left.remove(match)
    return bool(left) and not any(line.startswith("…") for line in expected)


def compared(expected, actual):
    """The first lines in which output is not what the page says."""
    lines = list(difflib.unified_diff(expected, actual, "page", "output", lineterm="", n=1))
    return "\n".join(lines[:MOST] + ["…"] * (len(lines) > MOST))


STAND_IN = r"""#!/bin/sh
case "$*" in
"run --release") exec portolan ;;
"build --release" | "build --manifest-path docs/example/Cargo.toml") ;;
"xtask install --prefix $HOME/portolan") [ -d "$HOME/portolan/lib" ] ;;
*) echo "cargo $*: this is no command that docs/blocks.py runs" >&2; exit 2 ;;
esac
"""


class Runner:
    def __init__(self, release, debug, home, write):
        self.write, self.home, self.release, self.debug = write, home, release, debug
        tools = pathlib.Path(home, ".book")
        tools.mkdir(exist_ok=True)
        (tools / "cargo").write_text(STAND_IN)
        (tools / "cargo").chmod(0o755)
        keep = ("LANG", "USER", "LOGNAME", "PATH", "TMPDIR")
        self.environment = {name: os.environ[name] for name in keep if name in os.environ}
        self.environment |= {
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "PATH": f"{tools}:{release}:{self.environment['PATH']}",
        }

    @staticmethod
    def traced(commands):
        """Where the timeline of a block goes that is one job on the model; of others several would share a file."""
        return ".timeline" if len(commands) == 1 and "portolan run" in commands[0] and "--fabric seastar" in commands[0] else None

    def folder(self, page):
        """A folder that looks like a checkout that is built."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.home))
        for name in ("tests", "programs", "conduit", "portals-shim", "nic-model"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "docs" / "example" / "target").mkdir(parents=True)
        for name in ("src", "Cargo.toml"):
            (folder / "docs" / "example" / name).symlink_to(ROOT / "docs" / "example" / name)
        for name in (ROOT / "docs" / "example").glob("*.c"):
            (folder / "docs" / "example" / name.name).symlink_to(name)
        (folder / "target").mkdir()
        (folder / "target" / "release").symlink_to(self.release)
        (folder / "docs" / "example" / "target" / "debug").symlink_to(self.debug)
        return folder

    def script(self, commands):
        """A shell that runs the commands, and puts a mark before the output and the status of each."""
        lines = ["[ -f .exports ] && . ./.exports", "trap 'export -p > .exports' EXIT", "s=0"]
        for command in commands:
            lines += ["printf '\\001'", "(exit $s)", command, "s=$?", "printf '\\002%d' $s"]
        return "\n".join(lines)

    def outputs(self, folder, commands, errors):
        """What each command prints, and its status."""
        trace = self.traced(commands)
        traced = {"PORTOLAN_TRACE": str(folder / trace)} if trace else {}
        with open(folder / ".errors", "w") as beside, subprocess.Popen(
            ["bash", "-c", self.script(commands)],
            cwd=folder,
            env=self.environment | traced,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else beside,
            start_new_session=True,
        ) as shell:
            try:
                said, _ = shell.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.communicate()
                raise ValueError(f"took more than {LIMIT} s") from None
        said = said.decode(errors="replace").replace(str(folder), "~").split("\001")[1:]
        for part in said:
            output, _, status = part.partition("\002")
            yield [line.rstrip() for line in output.splitlines()], int(status or -1)

    def again(self, block, folder, number, expected, actual):
        """What a command that printed something else than the page prints when its block is run once more."""
        commands = [command for command, _ in steps(block.text)]
        before = self.timeline(folder, commands)
        results = list(self.outputs(folder, commands, block.errors))
        if len(results) <= number:
            return "Run again, the block did not come so far.\n"
        printed = results[number][0]
        while printed and not printed[-1]:
            printed.pop()
        what = "the same" if printed == actual else "something else" if differs(block, expected, printed) else "what the page has"
        after = self.timeline(folder, commands)
        at = next((at for at, (one, other) in enumerate(zip(before, after)) if one != other), None)
        apart = "" if at is None else "\n".join(["The timelines part here:", *before[max(at - 3, 0) : at + 9], "and here:", *after[at : at + 9], ""])
        return f"Run again, it printed {what}.\n{apart}"

    def timeline(self, folder, commands):
        """The lines of the timeline of the last run, if it has one."""
        trace = self.traced(commands)
        return (folder / trace).read_text().splitlines() if trace and (folder / trace).is_file() else []

    def run(self, block, folder):
        """What is wrong with a block; with `write` the page has what came out."""
        wanted = steps(block.text)
        results = list(self.outputs(folder, [command for command, _ in wanted], block.errors))
        if len(results) < len(wanted):
            yield f"ended after {len(results)} of {len(wanted)} commands"
        true = []
        for number, ((command, expected), (actual, status)) in enumerate(zip(wanted, results)):
            asked = number + 1 < len(wanted) and wanted[number + 1][0].startswith("echo $?")
            while expected and not expected[-1]:
                expected.pop()
            while actual and not actual[-1]:
                actual.pop()
            if status != 0 and not asked:
                yield f"$ {command}\nends with status {status}:\n" + "\n".join(actual) + (folder / ".errors").read_text()
                return
            if differs(block, expected, actual):
                if self.write and not any("…" in line for line in expected):
                    expected = actual
                else:
                    said = (folder / ".errors").read_text()
                    yield f"$ {command}\n{compared(expected, actual)}\n{said}{self.again(block, folder, number, expected, actual)}"
            true.append("\n".join(["$ " + command, *expected]))
        if self.write and len(true) == len(wanted):
            block.text = "\n".join(true) + "\n"
        for kept, made in block.files():
            made = folder / made
            if not made.is_file():
                yield f"made no {made.name}"
            elif not kept.is_file() or kept.read_bytes() != made.read_bytes():
                if self.write:
                    shutil.copyfile(made, kept)
                else:
                    yield f"{os.path.relpath(kept, ROOT)} is not what the block makes; cargo xtask book --write"

    def page(self, page, here):
        """The problems of a page's blocks."""
        folder, text, wrong = self.folder(page), page.read_text(), []
        for block in here:
            if block.kind == "file":
                (folder / block.what).write_text(block.text)
            elif block.kind == "run":
                before = block.text
                try:
                    wrong += [f"{block.where()}: {what}" for what in self.run(block, folder)]
                except ValueError as what:
                    wrong.append(f"{block.where()}: {what}")
                if block.text != before:
                    text = text.replace(before, block.text, 1)
        for table in values(page):
            printed = []
            for output, status in self.outputs(folder, table.commands, False):
                printed += re.findall(r"\d+(?:\.\d+)?", " ".join(output)) if status == 0 else []
            wrong += [f"{table.where()}: {what}" for what in table.wrong(printed)]
        if text != page.read_text():
            page.write_text(text)
        shutil.rmtree(folder)
        return wrong


def summary():
    """How many blocks there are of each kind, and why the others are not run."""
    all_blocks = [block for page in pages() for block in blocks(page)]
    tables = [table for page in pages() for table in values(page)]
    kinds = collections.Counter(b.kind for b in all_blocks)
    shape = sum(b.kind == "run" and b.shape for b in all_blocks)
    print(
        f"{len(all_blocks)} blocks: {kinds['run'] - shape} run and compared to the digit, {shape} by shape,"
        f" {kinds['file']} files of these, {kinds['included']} included files, {kinds['drawing']} drawings,"
        f" {kinds['not run']} not run; {sum(len(table.numbers) for table in tables)} numbers of {len(tables)} tables compared. Not run:"
    )
    why = collections.defaultdict(list)
    for b in all_blocks:
        if b.kind == "not run":
            why[b.what].append(b.where())
    for reason, places in why.items():
        print(f"  {reason} ({', '.join(places)})")


def run(options):
    begun, wrong, ran = time.monotonic(), [], 0
    runner = Runner(options.bin.resolve(), (options.debug or options.bin).resolve(), options.home.resolve(), options.write)
    for page in pages():
        here = blocks(page)
        count = sum(b.kind == "run" for b in here) + len(values(page))
        if count and (not options.only or options.only in str(page.relative_to(ROOT))):
            at = time.monotonic()
            found = runner.page(page, here)
            print(f"{page.relative_to(ROOT)}: {count} run, {time.monotonic() - at:.1f} s" + (", wrong" if found else ""), flush=True)
            wrong += found
            ran += count
    for what in wrong:
        print(what)
    print(f"{ran} blocks and tables were run in {time.monotonic() - begun:.0f} s, {len(wrong)} problems")
    return bool(wrong) or ran == 0


def main():
    parser = argparse.ArgumentParser(description="Blocks of README and book.")
    parser.add_argument("--run", action="store_true", help="run them")
    parser.add_argument("--bin", type=pathlib.Path, help="where release executables are")
    parser.add_argument("--debug", type=pathlib.Path, help="where the example of the book is")
    parser.add_argument("--home", type=pathlib.Path, help="a folder with an installation in portolan")
    parser.add_argument("--only", help="pages whose path has this word")
    parser.add_argument("--write", action="store_true", help="write into the pages what came out")
    options = parser.parse_args()
    if options.run:
        if not options.bin or not options.home:
            parser.error("--run needs --bin and --home")
        failed = run(options)
    else:
        wrong = [f"{page.relative_to(ROOT)}: {what}" for page in pages() for what in problems(page)]
        print("\n".join(wrong), end="\n" if wrong else "")
        failed = bool(wrong)
    summary()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
