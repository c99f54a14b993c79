"""The locks of the sources: every field and static that one thread takes, or sets once, for others to wait or to see.

    docs/locks.py           prints them
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
import modules

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Types of the standard library, and those of this project that are made of atomics.
LOCKS = r"\b(?:(?:Mutex|RwLock|OnceLock|LazyLock)<|(?:Condvar|Once|Gate|Turn|Hsl)\b)"
# Crates that serve tests and developers.
LEFT_OUT = ("xtask", "tests", "tests/deny", "tests/explorer", "benches", "benches/time", "fuzz/replay", "portals-shim/fabric/testing")


def fields(text):
    """The names of fields, of statics, and of structures that have one without a name."""
    for body in re.findall(r"^(?:pub )?(?:struct|enum) [^;{(]*\{\n(.*?)^\}", text, re.M | re.S):
        for name, kind in re.findall(r"^    (?:pub )?(\w+)(?:: |\()(.*?),$", body, re.M):
            if re.search(LOCKS, kind) and "*const" not in kind:
                yield name
    for name, kind in re.findall(r"^(?:pub )?struct (\w+)(?:<[^>]*>)?\((.*?)\);$", text, re.M):
        if re.search(LOCKS, kind) and "&" not in kind:
            yield name
    for name, kind in re.findall(r"^ *(?:pub )?static (\w+): (.*?) =", text, re.M):
        if re.search(LOCKS, kind) and "*const" not in kind:
            yield name


def all():
    """Each lock of the crates that programs run: the file, and the name."""
    for crate in modules.crates():
        if crate not in LEFT_OUT:
            for file, text in modules.sources(ROOT / crate / "src").values():
                yield from ((file.relative_to(ROOT).as_posix(), name) for name in fields(text))


def listed(page):
    """Those that the tables of a page name: the first cell has the file, the second one the names."""
    for row in page.splitlines():
        cells = row.strip("|").split("|")
        file = re.fullmatch(r" `([\w./\-]+\.rs)` ", cells[0]) if row.startswith("|") and len(cells) > 2 else None
        if file:
            yield from ((file[1], name) for name in re.findall(r"`(\w+)`", cells[1]))


if __name__ == "__main__":
    for file, name in all():
        print(file, name)
