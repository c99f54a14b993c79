#!/usr/bin/env python3
"""A Python wheel of an installation: wheel.py INSTALLATION VERSION PLATFORM SUMMARY OUT

pip puts the commands into `bin` and the libraries into `lib` of the environment. A wheel has no links, so the other names of
libportals3 are not in it, and no static libraries.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile


def contents(installation, version, platform, summary):
    """All files, as (name in the wheel, bytes, mode)."""
    data = f"portolan-{version}.data"
    for path in sorted(installation.rglob("*")):
        inside = path.relative_to(installation)
        if path.is_symlink() or not path.is_file() or path.suffix == ".a":
            continue
        if inside.parts[0] == "bin":
            place = pathlib.Path(data, "scripts", *inside.parts[1:])
        else:
            place = pathlib.Path(data, "data", inside)
        yield str(place), path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644
    info = f"portolan-{version}.dist-info"
    yield f"{info}/METADATA", (
        f"Metadata-Version: 2.1\nName: portolan\nVersion: {version}\nSummary: {summary}\n"
        "License: MIT OR Apache-2.0\nRequires-Python: >=3\n"
    ).encode(), 0o644
    yield f"{info}/WHEEL", (
        f"Wheel-Version: 1.0\nGenerator: portolan {version}\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
    ).encode(), 0o644


def main():
    installation, version, platform, summary, out = sys.argv[1:]
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]
    to = pathlib.Path(out, f"portolan-{version}-py3-none-{platform}.whl")
    record = f"portolan-{version}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)

        for name, content, mode in contents(pathlib.Path(installation), version, platform, summary):
            add(name, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
        lines.append(f"{record},,\n")
        add(record, "".join(lines).encode(), 0o644)
    print(to)


main()
