#!/usr/bin/env python3
"""Which wheels in a folder have no image for a GPU: the ones that would install, and then fail or run on the processor.

usage: without_image.py FOLDER [DEVICE…]
"""

import pathlib
import sys
from typing import Iterator, Sequence

import offld


def reasons(wheel: pathlib.Path, devices: Sequence[str]) -> Iterator[str]:
    """Why a wheel would not run on one of the devices; nothing where it would, and where there is no device code in it."""
    report = offld.check(wheel, *devices)
    for file in report["files"]:
        if file["answer"] == "yes" or any(finding["what"] == "no-device-code" for finding in file["findings"]):
            continue
        member = "/".join(file["members"])
        for unit in file["units"]:
            for load in unit["loads"]:
                if load["answer"] != "yes":
                    yield f"{member}: {load['device']}: {load['answer']}: {load['text']}"
        yield from (f"{member}: {finding['text']}" for finding in file["findings"] if finding["answer"] != "yes")
        yield from (f"cannot be read: {error}" for error in file["errors"])


def main(folder: str, *devices: str) -> int:
    """The number of wheels that have none, as the exit status; 100 at most."""
    without = 0
    for wheel in sorted(pathlib.Path(folder).glob("*.whl")):
        found = sorted(set(reasons(wheel, devices or ["native"])))
        without += bool(found)
        print(f"{wheel.name}: {'no' if found else 'yes'}")
        for reason in found:
            print(f"  {reason}")
    return min(without, 100)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except (offld.Error, OSError) as error:
        sys.exit(f"without_image.py: {error}")
