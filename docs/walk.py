"""The walk of `PtlPut` over verbs: from C to the posted work request, and from its completion to the ACK.

    docs/walk.py            prints it

Each function is looked up in the sources by crate, type and name, so that the file beside it is the one that has it. Each but the
first of a way must be called by one before it.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

C = "portals-shim/capi"
SHIM = "portals-shim"
API = "portals-shim/fabric/api"
CORE = "portals-core"
VERBS = "portals-shim/fabric/verbs"
BACKEND = "verbs-backend"

# More files than a reader can hold in mind.
MOST = 12

# What happens, and the functions that have it happen: crate, type (none of a free function), name.
PUT = [
    ("checks what C gives", [(C, None, "PtlPut")]),
    ("makes a `Put` of it; an interface that is closed refuses", [(SHIM, "Interface", "put"), (SHIM, "Interface", "post_put")]),
    ("the seam between interface and library: takes the lock", [(API, "Direct", "put"), (API, "Direct", "start")]),
    ("has the put checked, offers it to the fabric, counts it", [(API, "Library", "put")]),
    ("descriptor, region, header, whether an ACK is asked for", [(API, "Library", "ready"), (CORE, "Ni", "ready_put")]),
    ("a put that can leave at once: is the peer connected, does nothing wait?", [(VERBS, "Verbs", "put"), (VERBS, "Verbs", "put_now")]),
    ("**chooses the protocol**, and with it the advert that admits the put", [(VERBS, None, "select_apart"), (VERBS, None, "select_where_memory_is"), (VERBS, None, "select")]),
    ("what its ACK will say is noted under the request's id", [(VERBS, "Verbs", "rma_write_now"), (VERBS, "Verbs", "write_short")]),
    ("room in the send queue, or the batch", [(VERBS, "SendQueue", "write_inline")]),
    ("**the work request**", [(VERBS, None, "write_inline"), (BACKEND, "Qp", "post_raw")]),
    ("one threshold count, SEND_END", [(CORE, "Ni", "pass_put")]),
]
ACK = [
    ("any call that makes progress", [(API, "Library", "progress")]),
    ("looks where something may have come", [(VERBS, "Verbs", "progress"), (VERBS, "Verbs", "look_everywhere")]),
    ("the completion", [(VERBS, "Verbs", "poll_once"), (VERBS, "Verbs", "handle_completions"), (VERBS, "Verbs", "end_records")]),
    ("which requests it ends: those before it made none", [(VERBS, "SendQueue", "done_up_to")]),
    ("which operation one is of", [(VERBS, "Verbs", "piece_done"), (VERBS, "Verbs", "offloaded_done")]),
    ("**the ACK event**", [(CORE, "Ni", "ack_in_place")]),
]


def found(crate, kind, name):
    """The files that define the function, and its text."""
    for file in sorted((ROOT / crate / "src").rglob("*.rs")):
        if "/tests" in file.as_posix():
            continue
        text = re.split(r"\n#\[cfg\(test\)\]\nmod \w+ \{", file.read_text())[0]
        if kind is None:
            blocks, indent = [text], ""
        else:
            impls = re.findall(r"^impl\b([^{;]*?)\{\n(.*?)^\}", text, re.M | re.S)
            blocks, indent = [body for head, body in impls if of(head) == kind], "    "
        for block in blocks:
            yield from (
                (file.relative_to(ROOT).as_posix(), body)
                for body in re.findall(rf"^{indent}(?:\w[\w() \"]* )?fn {name}\b.*?^{indent}\}}$", block, re.M | re.S)
            )


def of(head):
    """The type of an implementation."""
    head = re.sub(r"^<[^{]*?>\s", "", head).split(" where ")[0].split(" for ")[-1]
    return re.match(r"\s*([\w:]*)", head)[1].split("::")[-1]


def look(problem):
    """Rows of the table; `problem` is told of what is not so."""
    rows, files = [], []
    for title, steps in (("PtlPut", PUT), ("its ACK", ACK)):
        before = []
        for what, functions in steps:
            cells = []
            for crate, kind, name in functions:
                shown = f"{kind}::{name}" if kind else name
                places = list(found(crate, kind, name))
                if len(places) != 1:
                    problem(f"the walk of {title}: {shown} is {len(places)} times in {crate}")
                    continue
                file, body = places[0]
                if before and not any(re.search(rf"\b{name}\(", text) for text in before):
                    problem(f"the walk of {title}: nothing before it calls {shown}")
                before.append(body)
                files.append(file)
                cells.append((shown, file))
            rows.append((what, cells))
    there = sorted(set(files))
    if len(there) > MOST:
        problem(f"the walk leads through {len(there)} files, {MOST} may be: {' '.join(there)}")
    return rows, there


def table(problem):
    rows, files = look(problem)
    out = ["| step | function | file |", "|---|---|---|"]
    for number, (what, cells) in enumerate(rows):
        if number == len(PUT):
            out.append("| *the adapter has written the data, and says so* | | |")
        names = ", ".join(f"`{shown}`" for shown, _ in cells)
        places = ", ".join(f"`{file}`" for file in dict.fromkeys(file for _, file in cells))
        out.append(f"| {what} | {names} | {places} |")
    out += ["", f"These are {len(files)} files."]
    return "\n".join(out)


if __name__ == "__main__":
    print(table(lambda what: print(f"wrong: {what}")))
