#!/usr/bin/env python3
"""Writes a CycloneDX SBOM of the programs: the crates from cargo-cyclonedx, and the linked C and C++ libraries.

usage: cargo tree … | sbom.py FROM-CARGO-CYCLONEDX SOURCES LIBRARY=VERSION… > offld.cdx.json
Only crates named on stdin are included (one per line: `NAME vVERSION …`).
"""

import json
import sys

LICENSES = {"llvm": "Apache-2.0 WITH LLVM-exception", "zstd": "BSD-3-Clause"}


def library(spec: str) -> dict:
    name, version = spec.split("=", 1)
    return {
        "type": "library",
        "bom-ref": f"pkg:generic/{name}@{version}",
        "name": name,
        "version": version,
        "scope": "required",
        "licenses": [{"expression": LICENSES[name]}],
        "purl": f"pkg:generic/{name}@{version}",
    }


def main() -> None:
    source, folder, *libraries = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        # Local paths differ between machines, so they would make the SBOM irreproducible.
        text = file.read().replace(f"file://{folder}", "file://.")
    bom = json.loads(text)
    # A random number per file; CycloneDX does not require it.
    bom.pop("serialNumber", None)
    linked = {tuple(line.split(" ")[:2]) for line in sys.stdin.read().splitlines()}
    bom["components"] = [one for one in bom["components"] if (one["name"], "v" + one["version"]) in linked]
    root = bom["metadata"]["component"]["bom-ref"]
    refs = {root} | {one["bom-ref"] for one in bom["components"]}
    bom["dependencies"] = [row for row in bom["dependencies"] if row["ref"] in refs]
    bom["components"] += [library(spec) for spec in libraries]
    for row in bom["dependencies"]:
        row["dependsOn"] = [ref for ref in row.get("dependsOn", []) if ref in refs]
        if row["ref"] == root:
            row["dependsOn"] = sorted(row["dependsOn"] + [library(spec)["bom-ref"] for spec in libraries])
    bom["components"].sort(key=lambda component: component["bom-ref"])
    bom["dependencies"].sort(key=lambda row: row["ref"])
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


main()
