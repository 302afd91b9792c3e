#!/usr/bin/env python3
"""The list of what the programs are made of, as CycloneDX: the crates by cargo-cyclonedx, and the libraries in C and C++ that are linked in.

usage: cargo tree … | sbom.py FROM-CARGO-CYCLONEDX SOURCES LIBRARY=VERSION… > offld.cdx.json
Of the crates those are kept that stdin names, `NAME vVERSION …` in a line.
"""

import json
import sys

LICENSES = {"llvm": "Apache-2.0 WITH LLVM-exception", "zstd": "BSD-3-Clause"}


def library(word: str) -> dict:
    name, version = word.split("=", 1)
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
        # The folder that was built in is nobody's business, and differs from machine to machine.
        text = file.read().replace(f"file://{folder}", "file://.")
    bom = json.loads(text)
    # Made up anew for each file; without it the file is as valid.
    bom.pop("serialNumber", None)
    kept = {tuple(line.split(" ")[:2]) for line in sys.stdin.read().splitlines()}
    bom["components"] = [one for one in bom["components"] if (one["name"], "v" + one["version"]) in kept]
    root = bom["metadata"]["component"]["bom-ref"]
    refs = {root} | {one["bom-ref"] for one in bom["components"]}
    bom["dependencies"] = [row for row in bom["dependencies"] if row["ref"] in refs]
    bom["components"] += [library(word) for word in libraries]
    for row in bom["dependencies"]:
        row["dependsOn"] = [ref for ref in row.get("dependsOn", []) if ref in refs]
        if row["ref"] == root:
            row["dependsOn"] = sorted(row["dependsOn"] + [library(word)["bom-ref"] for word in libraries])
    bom["components"].sort(key=lambda component: component["bom-ref"])
    bom["dependencies"].sort(key=lambda row: row["ref"])
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


main()
