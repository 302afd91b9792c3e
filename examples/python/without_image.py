#!/usr/bin/env python3
"""Lists the wheels in a directory without an image for a GPU. They would install, and then fail or run on the CPU.

usage: without_image.py DIR [DEVICE…]
"""

import pathlib
import sys
from typing import Iterator, Sequence

import offld


def reasons(wheel: pathlib.Path, devices: Sequence[str]) -> Iterator[str]:
    """Yields why a wheel would not run on one of the devices. Yields nothing if it would, or if it has no device code."""
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
        yield from (f"cannot read: {error}" for error in file["errors"])


def main(folder: str, *devices: str) -> int:
    """Returns the exit status: the number of wheels without an image, at most 100."""
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
