#!/usr/bin/env python3
"""The list of what the programs are made of, as CycloneDX: the crates by cargo-cyclonedx, and the libraries in C and C++ that are linked in.

usage: sbom.py FROM-CARGO-CYCLONEDX SOURCES LIBRARY=VERSION… > offld.cdx.json
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
    bom["components"] += [library(word) for word in libraries]
    root = bom["metadata"]["component"]["bom-ref"]
    for row in bom["dependencies"]:
        if row["ref"] == root:
            row["dependsOn"] = sorted(row.get("dependsOn", []) + [library(word)["bom-ref"] for word in libraries])
    bom["components"].sort(key=lambda component: component["bom-ref"])
    bom["dependencies"].sort(key=lambda row: row["ref"])
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


main()
