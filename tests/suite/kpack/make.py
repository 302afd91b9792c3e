#!/usr/bin/env python3
"""Writes kpack archives as AMD's tools do, from a description on standard input:
{"output": FILE, "group": .., "family": .., "arches": [..], "scheme": "none"|"zstd-per-kernel",
 "entries": [[BINARY, ARCH, FILE], ..], "changes": {..}}
Layout: ROCm/rocm-systems, shared/kpack/python/rocm_kpack/kpack.py and compression.py.
`changes` replaces fields of the table of contents. zstd frames come from the `zstd` program."""
import json
import struct
import subprocess
import sys


def packed(value):
    """A value in MessagePack, in its shortest form, as Python's msgpack writes it."""
    if isinstance(value, str):
        data = value.encode()
        size = len(data)
        if size < 32:
            return bytes([0xA0 | size]) + data
        if size < 256:
            return bytes([0xD9, size]) + data
        return b"\xda" + struct.pack(">H", size) + data
    if isinstance(value, int):
        for limit, form in ((0x80, "B"), (0x100, "cc"), (0x10000, "cd"), (0x100000000, "ce")):
            if value < limit:
                code = {"B": b"", "cc": b"\xcc", "cd": b"\xcd", "ce": b"\xce"}[form]
                return code + struct.pack({"B": ">B", "cc": ">B", "cd": ">H", "ce": ">I"}[form], value)
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, list):
        size = len(value)
        head = bytes([0x90 | size]) if size < 16 else b"\xdc" + struct.pack(">H", size)
        return head + b"".join(map(packed, value))
    size = len(value)
    head = bytes([0x80 | size]) if size < 16 else b"\xde" + struct.pack(">H", size)
    return head + b"".join(packed(key) + packed(one) for key, one in value.items())


def archive(description):
    toc, stored = {}, []
    for ordinal, (binary, arch, path) in enumerate(description["entries"]):
        with open(path, "rb") as file:
            data = file.read()
        entry = {"type": "hsaco", "ordinal": ordinal, "original_size": len(data)}
        toc.setdefault(binary, {})[arch] = entry
        if description["scheme"] != "none":
            data = subprocess.run(
                ["zstd", "-3", "--no-check", f"--stream-size={len(data)}"],
                input=data, stdout=subprocess.PIPE, check=True).stdout
        stored.append(data)
    fields = {
        "format_version": 1,
        "group_name": description["group"],
        "gfx_arch_family": description["family"],
        "gfx_arches": description["arches"],
        "toc": toc,
        "compression_scheme": description["scheme"],
    }
    if description["scheme"] == "none":
        data, blobs = b"", []
        for one in stored:
            blobs.append({"offset": 64 + len(data), "size": len(one)})
            data += one
        fields["blobs"] = blobs
    else:
        data = struct.pack("<I", len(stored))
        data += b"".join(struct.pack("<I", len(one)) + one for one in stored)
        fields["zstd_offset"] = 64
        fields["zstd_size"] = len(data)
    fields.update(description.get("changes", {}))
    header = struct.pack("<4sIQ", b"KPAK", 1, 64 + len(data))
    return header.ljust(64, b"\0") + data + packed(fields)


description = json.load(sys.stdin)
if "reference" in description:
    # The section of a program: kpack_transform.py writes the paths first.
    data = packed(description["reference"])
else:
    data = archive(description)
with open(description["output"], "wb") as file:
    file.write(data)
