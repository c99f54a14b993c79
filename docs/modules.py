"""The modules of a crate, and which of them name each other in a circle.

    docs/modules.py            prints the circles of every crate

Read from the sources alone: `use` declarations, paths in the text, and what modules hand on. Modules of tests do not count. A
module names another one if it names anything that the other one defines, by whatever way it was handed on.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

VISIBLE = r"(?:pub(?:\([^)]*\))?\s+)?"
OWN_PATH = ("crate", "self", "super")


# Comments, characters, and strings, which may go on in the next line.
TOKENS = re.compile(r"""//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])'|"(?:\\.|[^"\\])*\"""", re.S)


def plain(text):
    """Without comments and strings, and without the tests at its end."""
    # In one pass: a string may have what begins a comment, and a comment what begins a string.
    text = TOKENS.sub(lambda m: '""' if m[0].startswith('"') else "", text)
    # Who may name a thing is no use of it.
    text = re.sub(r"\bpub\([^)]*\)", "pub", text)
    tests = re.search(r"#\[cfg\((?:all\()?(?:test|loom)[^\]]*\]\s*" + VISIBLE + r"mod\s+\w+\s*\{", text)
    return text[: tests.start()] if tests else text


def sources(src):
    """The file of each module by its path, from `lib.rs` or `main.rs` on, and its text."""
    found = {}

    def visit(file, name, folder):
        text = plain(file.read_text())
        found[name] = file, text
        for attributes, child in re.findall(r"((?:#\[[^\]]*\]\s*)*)" + VISIBLE + r"mod\s+(\w+)\s*;", text):
            if re.search(r"cfg\((all\()?(test|loom)", attributes):
                continue
            for file in (folder / f"{child}.rs", folder / child / "mod.rs"):
                if file.exists():
                    visit(file, name + (child,), folder / child)
                    break

    for root in (src / "lib.rs", src / "main.rs"):
        if root.exists():
            visit(root, (), src)
            break
    return found


def modules(src):
    """The text of each module by its path."""
    return {name: text for name, (_, text) in sources(src).items()}


def expanded(prefix, text):
    """Each path of a `use`, and the name that it has here."""
    depth, part, parts = 0, "", []
    for c in text:
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
            continue
        depth += (c == "{") - (c == "}")
        part += c
    for part in filter(None, (p.strip() for p in parts + [part])):
        brace = part.find("{")
        if brace >= 0:
            head = [w.strip() for w in part[:brace].split("::") if w.strip()]
            yield from expanded(prefix + head, part[brace + 1 : part.rindex("}")])
            continue
        path, _, alias = part.partition(" as ")
        path = prefix + [w.strip() for w in path.split("::") if w.strip()]
        last = path[-2] if path[-1] == "self" else path[-1]
        yield tuple(path), alias.strip() or last


def arrows(found):
    """Pairs of modules, the first of which names the second."""
    used = {
        name: [u for words in re.findall(r"\buse\s+([^;]+);", text) for u in expanded([], words)]
        for name, text in found.items()
    }
    handed = {name: {here: path for path, here in paths} for name, paths in used.items()}

    def absolute(module, path):
        """From the root of the crate; `None` for a path of another crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return module + path[1:]
        if path[0] == "super":
            while path and path[0] == "super":
                module, path = module[:-1], path[1:]
            return module + path
        if module + path[:1] in found:
            return module + path
        known = handed[module].get(path[0])
        if known and known != path[:1] and (known[0] in OWN_PATH or module + known[:1] in found):
            inner = absolute(module, known)
            return None if inner is None else inner + path[1:]
        return None

    def owner(path, seen=()):
        """The module that defines what a path names."""
        for length in range(len(path), -1, -1):
            module, rest = path[:length], path[length:]
            if module not in found:
                continue
            if rest and rest[0] in handed[module] and (module, rest[0]) not in seen:
                inner = absolute(module, handed[module][rest[0]])
                if inner is None:
                    return None if handed[module][rest[0]][0] not in OWN_PATH else module
                if inner != path:
                    return owner(inner + rest[1:], seen + ((module, rest[0]),))
            return module
        return None

    for name, text in found.items():
        rest = re.sub(r"\buse\s+[^;]+;", "", text)
        inline = [tuple(p.split("::")) for p in re.findall(r"(?<![\w:])((?:[a-z_]\w*)(?:::\w+)+)", rest)]
        for path in [p for p, _ in used[name]] + inline:
            path = absolute(name, path)
            other = owner(path) if path is not None else None
            if other is not None and other != name:
                yield name, other


def circles(src):
    """Groups of modules that name each other in a circle, the largest first (Tarjan)."""
    found = modules(src)
    after = {name: set() for name in found}
    for a, b in arrows(found):
        after[a].add(b)
    index, low, stack, out = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in after[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            out.append(sorted("::".join(m) or "the root" for m in stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for name in found:
        if name not in index:
            visit(name)
    return sorted((c for c in out if len(c) > 1), key=len, reverse=True)


def crates():
    """The folders of all crates of the workspace."""
    members = re.search(r"members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.S)[1]
    return re.findall(r'"([^"]+)"', members)


if __name__ == "__main__":
    for crate in crates():
        for circle in circles(ROOT / crate / "src"):
            print(f"{crate}: {len(circle)}: {' '.join(circle)}")
