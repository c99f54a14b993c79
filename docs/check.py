#!/usr/bin/env python3
"""Keeps the documentation true: run from anywhere, needs Python 3 only.

    docs/check.py            look; says what is wrong and ends with 1
    docs/check.py --write    write the parameter table, and the walk of a put, first

Looks at docs/src, docs/decisions and the Markdown files of the root:
  * relative links and includes lead to files; every page is in SUMMARY.md
  * files named in `backticks` that look like paths of the repository exist
  * `file::test` exists: the file holds a function of that name
  * each row of the table of the conduit's README names a test, a file, a command or a page, or says why it does not apply
  * the parameter table is the one of nic-model/machines/xt4.toml
  * the list of files with unsafe code in CONTRIBUTING.md is the true one
  * so is that of files that speak to peers over sockets or event descriptors, and those that may not block do not
  * the walk of a put is the one through the sources, and leads through few files
  * every lock of the sources is on the page of locks, and no other
  * no circle of modules that name each other is larger than it may be
  * a test that runs itself again in another process names itself: by another name nothing would run, and that ends well
  * nothing but tests starts threads, or prints, by what panics where the system refuses it
  * each block and each picture is made by a command, or says why not; docs/blocks.py runs them
  * sentences of the pages that users read have 25 words at most
"""

import pathlib
import re
import subprocess
import sys
import tomllib

sys.dont_write_bytecode = True
import blocks
import locks
import modules
import walk
import words

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "docs" / "src"
TABLE = SRC / "mechanisms" / "xt4-parameters.md"
MACHINE = ROOT / "nic-model" / "machines" / "xt4.toml"
PARAMS = ROOT / "nic-model" / "src" / "params.rs"
TOP = {p.name for p in ROOT.iterdir() if p.is_dir()}

problems = []


def problem(where, what):
    problems.append(f"{where.relative_to(ROOT)}: {what}")


def meanings():
    """What each parameter means, from the comments of params.rs."""
    found, comment = {}, []
    for line in PARAMS.read_text().splitlines():
        line = line.strip()
        if line.startswith("/// "):
            comment.append(line[4:])
            continue
        key = re.match(r"(\w+): (?:\w+) = \"", line)
        if key:
            found[key[1]] = " ".join(comment)
        comment = []
    return found


def shown(value, unit):
    if unit == "ps":
        return f"{value / 1000:g} ns"
    if unit == "percent":
        return f"{value} %"
    return f"{value:,}" if unit == "1" else f"{value:,} {unit}"


def table():
    machine, about = tomllib.loads(MACHINE.read_text()), meanings()
    out = [
        "<!-- Written by docs/check.py --write from nic-model/machines/xt4.toml. -->",
        "",
        "# Parameters of the xt4",
        "",
        "`nic-model/machines/xt4.toml`: " + machine["description"] + ".",
        "",
        "| status | meaning |",
        "|---|---|",
        "| measured | on the machine |",
        "| model | from somebody's published model of the machine |",
        "| recalled | remembered from a publication, not verified |",
        "| ours | assumed or fitted in this project |",
        "",
        "Sources: S4 the portals-conduit of GASNet; S5 SST's `SS_router`; S6 SST's patterns machine file"
        " `M_XT4.in`; S7 the Seshat simulator's Red Storm network; S13 the first page of a paper on the Red"
        " Storm upgrade; Cluster 2005 a paper on Portals on the XT3, of which only the abstract could be read.",
        "",
        "A file with a missing, misspelt, absurd or wrongly measured parameter is refused with key, line and"
        " reason (`nic-model/src/params.rs`).",
    ]
    for section in (k for k, v in machine.items() if isinstance(v, dict)):
        out += ["", f"## {section}", "", "| parameter | value | status | source | what |", "|---|--:|---|---|---|"]
        for key, p in machine[section].items():
            value = shown(p["value"], p["unit"])
            out.append(f"| `{key}` | {value} | {p['status']} | {p['source']} | {about.get(key, '')} |")
    return "\n".join(out) + "\n"


def anchors(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for title in re.findall(r"^#+ (.+)$", text, re.M):
        title = re.sub(r"[`*]", "", title).strip().lower()
        yield re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


def check_links(page, text):
    plain = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", plain):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            problem(page, f"link to {link}")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            problem(page, f"no heading for {link}")
    for include in re.findall(r"\{\{#include ([^}:\s]+)", text):
        file = page.parent / include
        if not file.exists():
            problem(page, f"include of {include}")
        elif file.suffix == ".md":
            # A link of an included file leads from the page.
            check_links(page, file.read_text())


def check_names(page, text):
    for name in re.findall(r"`([\w.\-]+(?:/[\w.\-]+)+/?(?:::\w+)?)`", text):
        path, _, test = name.partition("::")
        if path.split("/")[0] not in TOP or path.startswith("target/"):
            continue
        file = ROOT / path
        if not file.exists():
            problem(page, f"no {path}")
        elif test and not re.search(rf"\b(?:fn|def) {test}\b", file.read_text()):
            problem(page, f"no test {test} in {path}")


COVERAGE = SRC / "readme-coverage.md"
REASONS = ("does not apply", "not taken", "numbers that decay")


def check_coverage():
    """Names that stand in a row exist by check_names and check_links; here each row has one."""
    rows = [r for r in COVERAGE.read_text().splitlines() if r.startswith("| ")][1:]
    if len(rows) < 40:
        problem(COVERAGE, f"a table of {len(rows)} rows")
    for row in rows:
        cells = [c.strip() for c in row.strip("|").split(" | ")]
        what, by = cells[0], cells[-1].rstrip("| ") if len(cells) > 1 else ""
        heading = re.fullmatch(r"\|?\s*\*\*[^*]+\*\*.*", what) and not by
        named = re.search(r"`[\w.\-]+(/[\w.\-]+)+(::\w+)?`|`cargo xtask [^`]+`|\]\([^)\s]+\)", by)
        if not heading and not named and not by.startswith(REASONS):
            problem(COVERAGE, f"nothing covers {what}")


VERBS = "portals-shim/fabric/verbs/src"
SHM = "portals-shim/fabric/shm/src"
CELLS = [f"{SHM}/cell.rs", f"{SHM}/layout.rs", "portals-core/src/header.rs"]
# Figures of the book that are constants of the code: the page, what stands there, with a group for each figure, the files of the
# constants, and their names.
FIGURES = [
    (
        "mechanisms/verbs.md",
        r"slots of (\d+) bytes \(an (\d+)-byte prefix, a header of up to (\d+) bytes, (\d+) bytes of data\)",
        [f"{VERBS}/frame.rs"],
        ["SLOT", "PREFIX", "HEADER", "EAGER"],
    ),
    ("one-put.md", r"prefix (\d+) │ header (\d+) │ data", [f"{VERBS}/frame.rs"], ["PREFIX", "HEADER"]),
    ("mechanisms/verbs.md", r"get, up to (\d+) bytes", [f"{VERBS}/proto/select.rs"], ["SHORT_GET"]),
    ("mechanisms/verbs.md", r"at most (\d+) rings", [f"{VERBS}/proto/eager_ring/rings.rs"], ["MOST"]),
    ("mechanisms/verbs.md", r"after (\d+) short frames", [f"{VERBS}/proto/eager_ring/rings.rs"], ["ACTIVE"]),
    ("mechanisms/verbs.md", r"slot, (\d+) bytes:", [f"{VERBS}/proto/eager_ring/slots.rs"], ["SLOT"]),
    ("mechanisms/verbs.md", r"Up to (\d+) ranks all are read at the start", [f"{VERBS}/connect.rs"], ["PREFETCH"]),
    ("mechanisms/shm.md", r"of a put, up to (\d+) bytes", CELLS, ["SHORT"]),
    ("mechanisms/shm.md", r"\| up to (\d+) bytes \| in the cell \|", CELLS, ["INLINE"]),
    ("mechanisms/shm.md", r"ring r→b: cells of (\d+) bytes", CELLS, ["CELL"]),
]


def constant(files, name):
    """The value of a constant that is made of numbers and constants of these files."""
    for file in files:
        found = re.search(rf"const {name}: \w+ =\s*([^;]+);", (ROOT / file).read_text())
        if found:
            text = re.sub(r" as \w+", "", found[1])
            text = re.sub(r"\b[A-Z][A-Z0-9_]*\b", lambda m: str(constant(files, m[0])), text)
            if not re.fullmatch(r"[\d\s+*()<-]+", text):
                raise ValueError(f"{file}: {name} is {text}")
            return eval(text)
    raise ValueError(f"no {name} in {' '.join(files)}")


def check_figures():
    for page, stands, files, names in FIGURES:
        path = SRC / page
        found = re.search(stands, path.read_text())
        true = [constant(files, name) for name in names]
        if not found:
            problem(path, f"says nothing like {stands!r}")
        elif [int(n) for n in found.groups()] != true:
            problem(path, f"says {found[0]!r}; {', '.join(names)} are {true}")


def check_decisions():
    """The page has every decision once, in order."""
    page = SRC / "decisions.md"
    shown = re.findall(r"#include \.\./decisions/([\w.\-]+)", page.read_text())
    there = sorted(f.name for f in (ROOT / "docs" / "decisions").glob("*.md"))
    if shown != there:
        wrong = sorted(set(shown) ^ set(there)) or "their order, or one twice"
        problem(page, f"not each of docs/decisions once, in order: {wrong}")


def check_unsafe():
    page = ROOT / "CONTRIBUTING.md"
    text = page.read_text() if page.exists() else ""
    listed = re.search(r"<!-- unsafe -->(.*?)<!-- /unsafe -->", text, re.S)
    listed = set(re.findall(r"`([\w./\-]+\.rs)`", listed[1])) if listed else set()
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.rs"], capture_output=True, text=True, check=True
    ).stdout.split()
    true = {
        f
        for f in files
        if (ROOT / f).exists() and re.search(r"expect\(\s*unsafe_code|allow\(\s*unsafe_code", (ROOT / f).read_text())
    }
    for f in sorted(true - listed):
        problem(page, f"{f} has unsafe code and is not listed")
    for f in sorted(listed - true):
        problem(page, f"{f} is listed and has no unsafe code")


# Where no program of a user is: tests, what builds and checks, and examples.
PANICS_MAY = re.compile(
    r"(^|/)(tests?|benches|examples|example|fuzz|xtask|testing)(/|\.rs$)|(^|/)(tests|build|link|again|explore|oracle)\.rs$|^firehose/src/world\.rs$"
)
PANICS = re.compile(r"\bthread::spawn\(|(?<![\w:])e?print(ln)?!\(")


def check_panics():
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.rs"], capture_output=True, text=True, check=True
    ).stdout.split()
    for f in files:
        if PANICS_MAY.search(f) or not (ROOT / f).exists():
            continue
        text = (ROOT / f).read_text()
        # Tests stand at the end of a file.
        text = re.split(
            r"^\s*#\[cfg\((?:all\()?test.*\n(?:.*\n){0,6}?\s*(?:pub(?:\(crate\))? )?mod \w+ \{", text, maxsplit=1, flags=re.M
        )[0]
        for number, line in enumerate(text.splitlines(), 1):
            if PANICS.search(line) and not line.lstrip().startswith("//"):
                problem(ROOT / f, f"{number}: panics where the system refuses it: host::say, writeln!, thread::Builder")


def check_again():
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.rs"], capture_output=True, text=True, check=True
    ).stdout.split()
    for f in files:
        text = (ROOT / f).read_text() if (ROOT / f).exists() else ""
        if '"--exact"' not in text or "/src/" not in f:
            continue
        module = re.sub(r"(?:/mod)?\.rs$", "", f.split("/src/", 1)[1]).replace("/", "::")
        functions = re.findall(r"\bfn (\w+)\(", text)
        true = {f"{module}{inner}::{name}" for inner in ("", "::tests") for name in functions}
        for name in re.findall(r'"((?:[a-z_0-9]+::)+[a-z_0-9]+)"', text):
            if name not in true:
                problem(ROOT / f, f"{name} is no function of this file")


# Names without which nobody reaches a socket or an event descriptor.
PEERS = re.compile(r"\brustix::net\b|\bos::unix::net\b|\b(?:TcpStream|TcpListener|UdpSocket)\b|\bEventfdFlags\b|\bSYS_io_submit\b")
# What a call, or the descriptor it is of, has that does not block.
AT_ONCE = re.compile(r"NONBLOCK|set_nonblocking|DONTWAIT|SYS_io_submit")
# Folders and files that no user runs.
TESTS = re.compile(r"(^|/)(tests|examples|benches|fuzz)/|/tests\.rs$|^xtask/")


def check_peers():
    page = ROOT / "CONTRIBUTING.md"
    block = re.search(r"<!-- peers -->(.*?)<!-- /peers -->", page.read_text(), re.S)
    listed = {}
    for row in block[1].splitlines() if block else []:
        cells = [c.strip() for c in row.strip("|").split("|")]
        for f in re.findall(r"`([\w./\-]+\.rs)`", cells[0]):
            listed[f] = cells[1]
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.rs"], capture_output=True, text=True, check=True
    ).stdout.split()
    true = set()
    for f in files:
        if TESTS.search(f) or not (ROOT / f).exists():
            continue
        text = re.split(r"\n#\[cfg\(test\)\]\nmod \w+ \{", (ROOT / f).read_text())[0]
        if not PEERS.search(text):
            continue
        true.add(f)
        if f not in listed:
            problem(page, f"{f} speaks to peers and is not listed: who waits when one does not answer, or does not read?")
        elif listed[f] == "never" and not AT_ONCE.search(text):
            problem(page, f"{f} is listed as one that never blocks, and says nowhere that it does not")
        elif listed[f] not in ("never", "itself"):
            problem(page, f"{f}: blocks {listed[f]!r}, which is neither never nor itself")
    for f in sorted(set(listed) - true):
        problem(page, f"{f} is listed and speaks to nobody")


# Modules that may name each other in a circle: beyond that a reader has to hold all of them in mind at once.
LARGEST_CIRCLE = 12


def check_circles():
    page = ROOT / "docs" / "modules.py"
    for crate in modules.crates():
        found = modules.circles(ROOT / crate / "src")
        size = len(found[0]) if found else 0
        if size > LARGEST_CIRCLE:
            names = " ".join(found[0])
            problem(page, f"{crate}: {size} modules name each other in a circle, {LARGEST_CIRCLE} may: {names}")


def check_locks():
    page = SRC / "mechanisms" / "locks.md"
    true, named = set(locks.all()), list(locks.listed(page.read_text()))
    for file, name in sorted(true - set(named)):
        problem(page, f"{file} has a lock `{name}`: what does it protect, and what may be taken with it?")
    for file, name in sorted(set(named) - true):
        problem(page, f"{file} has no lock `{name}`")
    for file, name in sorted({lock for lock in named if named.count(lock) > 1}):
        problem(page, f"{file}: `{name}` twice")


WALK = SRC / "one-put.md"
WALK_BLOCK = re.compile(r"(<!-- walk: [^>]* -->\n)(.*?)(<!-- /walk -->)", re.S)


def walked():
    """The page with the walk as it is."""
    block = walk.table(lambda what: problem(WALK, what)) + "\n"
    return WALK_BLOCK.sub(lambda m: m[1] + block + m[3], WALK.read_text())


def check_walk():
    page = WALK.read_text()
    if not WALK_BLOCK.search(page) or walked() != page:
        problem(WALK, "not the walk through the sources; docs/check.py --write")


def main():
    if "--write" in sys.argv:
        TABLE.write_text(table())
        WALK.write_text(walked())
        problems.clear()
    if not TABLE.exists() or TABLE.read_text() != table():
        problem(TABLE, "not the table of the machine file; docs/check.py --write")
    summary = (SRC / "SUMMARY.md").read_text()
    for page in blocks.pages():
        text = page.read_text()
        check_links(page, text)
        check_names(page, text)
        for what in blocks.problems(page):
            problem(page, what)
        if page.is_relative_to(SRC) and page.name != "SUMMARY.md":
            if f"({page.relative_to(SRC).as_posix()})" not in summary:
                problem(page, "not in SUMMARY.md")
    check_decisions()
    check_figures()
    check_unsafe()
    check_again()
    check_panics()
    check_peers()
    check_coverage()
    check_circles()
    check_locks()
    check_walk()
    for page, what in words.problems():
        problem(page, what)
    for p in problems:
        print(p)
    blocks.summary()
    return 1 if problems else 0


sys.exit(main())
