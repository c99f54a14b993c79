"""Figures of the structure of a checkout, to compare two.

    docs/measure.py [FOLDER]          prints them of the checkout in FOLDER, or of this one
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
import modules

# Declarations of other libraries, and tables of parameters: their fields are not for this project to choose.
LEFT_OUT = ("verbs-backend/sys", "nic-model", "tests", "tests/deny", "tests/explorer", "xtask", "benches", "benches/time", "fuzz/replay", "programs")


def lines(folder):
    """Lines of Rust below `src`, tests included."""
    return sum(len(f.read_text().splitlines()) for f in sorted((folder / "src").rglob("*.rs")))


def fields(text):
    """Structures and the number of their named fields."""
    for name, body in re.findall(r"^(?:pub )?struct (\w+)[^;{(]*\{\n(.*?)^\}", text, re.M | re.S):
        yield len(re.findall(r"^    (?:pub )?\w+: ", body, re.M)), name


def methods(text, trait):
    """How many methods a trait has."""
    body = re.search(rf"^pub trait {trait}\b.*?^\}}", text, re.M | re.S)
    return len(re.findall(r"^    fn \w+", body[0], re.M)) if body else 0


def look(root):
    members = re.search(r"members = \[(.*?)\]", (root / "Cargo.toml").read_text(), re.S)[1]
    crates = re.findall(r'"([^"]+)"', members)
    sources = {crate: modules.sources(root / crate / "src") for crate in crates}
    print("lines by crate:")
    for crate in crates:
        print(f"  {crate:34} {lines(root / crate):6}")
    print("methods of traits that stand between the interface and a fabric:")
    for crate, found in sources.items():
        for file, text in found.values():
            for trait in ("Nal", "Bridge", "DatagramNal"):
                if count := methods(text, trait):
                    print(f"  {trait:34} {count:6}   {file.relative_to(root)}")
    print("largest structures by their fields:")
    all_fields = [
        (count, name, file.relative_to(root))
        for crate, found in sources.items()
        if crate not in LEFT_OUT
        for file, text in found.values()
        for count, name in fields(text)
    ]
    for count, name, file in sorted(all_fields, reverse=True)[:6]:
        print(f"  {name:34} {count:6}   {file}")
    print("largest circles of modules:")
    circles = [(len(circle), crate) for crate in crates for circle in modules.circles(root / crate / "src")]
    for size, crate in sorted(circles, reverse=True)[:4]:
        print(f"  {crate:34} {size:6}")


if __name__ == "__main__":
    look(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else modules.ROOT).resolve())
