"""How long the sentences are of the pages that users read.

    docs/words.py            prints each that is too long

Only what is surely one sentence counts: it ends with a full stop, a question mark, a colon at the end of a line, or the end of its paragraph, list
item or cell. Code counts as one word, so does a link's address as none.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGEST = 25
PAGES = (
    "README.md",
    "docs/src/introduction.md",
    "docs/src/portals-in-ten-minutes.md",
    "docs/src/gasnet-in-ten-minutes.md",
    "docs/src/course.md",
    "docs/src/comparison.md",
    "docs/src/state.md",
    "docs/src/writing-a-program.md",
    "docs/src/troubleshooting.md",
    "docs/src/programs.md",
    "docs/src/trace.md",
    "docs/src/c-programs.md",
    "docs/src/libfabric.md",
    "docs/src/porting-to-clusters.md",
    "docs/src/command-line.md",
    "docs/src/gasnet.md",
    "docs/src/environments.md",
    "docs/src/packages.md",
    "docs/src/glossary.md",
)


def paragraphs(text):
    """Paragraphs, list items and cells, without code and links."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"`[^`]+`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^( *([-*]|\d+\.) )", r"\n\1", text, flags=re.M)
    for part in re.split(r"\n\s*\n", text):
        if part.lstrip().startswith("|"):
            yield from re.split(r"[|\n]", part)
        elif not part.lstrip().startswith("#"):
            yield part


def long_sentences(text):
    for paragraph in paragraphs(text):
        for sentence in re.split(r"(?<=[.?!:])\s+", paragraph):
            found = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(found) > LONGEST:
                yield len(found), " ".join(found)


def problems():
    for name in PAGES:
        page = ROOT / name
        for length, sentence in long_sentences(page.read_text()):
            yield page, f"a sentence of {length} words: {sentence[:90]} …"


if __name__ == "__main__":
    for page, what in problems():
        print(f"{page.relative_to(ROOT)}: {what}")
    sys.exit(any(True for _ in problems()))
