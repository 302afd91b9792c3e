#!/usr/bin/env python3
"""The wheel for PyPI: `offld` where pip puts programs, `offld-llvm` in libexec/offld beside it, manual pages, completions, and the module of
packaging/python, for `python -m offld`. No tool builds it, because nothing is compiled: a wheel is a zip file with a list of digests.

usage: wheel.py VERSION GLIBC PROGRAMS TREE SOURCES SBOM|- OUT
"""

import base64
import gzip
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

# PyPI takes more; people who build wheels in containers fetch this one often.
LARGEST = 30 * 1000 * 1000


def metadata(version: str, readme: str) -> str:
    fields = f"""Metadata-Version: 2.4
Name: offld
Version: {version}
Summary: The offload linker: links device code embedded in host objects, registers it, runs the host link
Keywords: linker,offload,openmp,cuda,hip,gpu,llvm
License-Expression: Apache-2.0 WITH LLVM-exception
License-File: LICENSE
Classifier: Environment :: Console
Classifier: Intended Audience :: Developers
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Build Tools
Requires-Python: >=3.8
Description-Content-Type: text/markdown
"""
    return fields + "\n" + readme


def members(version: str, tag: str, programs: Path, tree: Path, sources: Path, sbom: str) -> "dict[str, tuple[bytes, bool]]":
    """Name in the wheel -> contents, and whether it is a program."""
    data, info = f"offld-{version}.data", f"offld-{version}.dist-info"
    found = {
        f"{data}/scripts/offld": ((programs / "offld").read_bytes(), True),
        # Beside offld's folder, where it looks; in PATH it would be of no use.
        f"{data}/data/libexec/offld/offld-llvm": ((programs / "offld-llvm").read_bytes(), True),
        # A wheel has no symbolic links. `offld links DIR` makes the other names; this one is for -fuse-ld=offld.
        f"{data}/scripts/ld.offld": (b'#!/bin/sh\nexec "$(dirname "$0")/offld" ld.offld "$@"\n', True),
    }
    for path in sorted((tree / "usr/share").rglob("*")):
        inside = path.relative_to(tree / "usr")
        if not path.is_file() or inside.parts[1] == "doc":
            continue
        contents = path.read_bytes()
        if path.suffix == ".gz":
            inside, contents = inside.with_suffix(""), gzip.decompress(contents)
        found[f"{data}/data/{inside}"] = (contents, False)
    for path in sorted((sources / "packaging/python/offld").glob("*")):
        if path.is_file():
            found[f"offld/{path.name}"] = (path.read_bytes().replace(b"@VERSION@", version.encode()), False)
    readme = (sources / "packaging/python/README.md").read_text(encoding="utf-8")
    found[f"{info}/METADATA"] = (metadata(version, readme).encode(), False)
    found[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: offld\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), False)
    found[f"{info}/licenses/LICENSE"] = ((sources / "LICENSE").read_bytes(), False)
    if (sources / "NOTICE").exists():
        found[f"{info}/licenses/NOTICE"] = ((sources / "NOTICE").read_bytes(), False)
    if sbom != "-":
        found[f"{info}/sboms/offld.cdx.json"] = (Path(sbom).read_bytes(), False)
    return found


def record(found: "dict[str, tuple[bytes, bool]]", name: str) -> bytes:
    rows = []
    for member, (contents, _) in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
        rows.append(f"{member},sha256={digest},{len(contents)}\n")
    return ("".join(rows) + f"{name},,\n").encode()


def main() -> None:
    version, glibc, programs, tree, sources, sbom, out = sys.argv[1:]
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    found = members(version, tag, Path(programs), Path(tree), Path(sources), sbom)
    listing = f"offld-{version}.dist-info/RECORD"
    found[listing] = (record(found, listing), False)
    # Zip files have no times before 1980.
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    wheel = Path(out) / f"offld-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (contents, program) in found.items():
            member = zipfile.ZipInfo(name, when)
            member.create_system = 3
            member.external_attr = (0o100755 if program else 0o100644) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, contents, compresslevel=9)
    size = wheel.stat().st_size
    if size > LARGEST:
        sys.exit(f"packages: {wheel.name} has {size} bytes, and {LARGEST} are the most it may have")


main()
