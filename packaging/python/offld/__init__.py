"""offld, the offload linker: reports on the device code (OpenMP, CUDA, HIP, SYCL) in files. pip also installs the program ``offld``.

>>> import offld
>>> for image in offld.images("package.whl"):
...     print(image.target, image.size)
>>> offld.check("package.whl", "gfx942")["answer"]
>>> offld.size("package.whl")["total"]["rows"]

``python -m offld …`` runs the program of this package, even if PATH has another one.
"""

from __future__ import annotations

from offld import _offld
from offld._errors import Error
from offld._program import program
from offld._reports import FileReport, Image, StrPath, check, images, inspect, inspect_bytes, size
from offld._types import (
    Answer,
    CheckReport,
    Duplicates,
    Entries,
    FileCheck,
    FileSize,
    Finding,
    ImageSize,
    Kernel,
    Level,
    Library,
    LinkedBy,
    Load,
    Module,
    NotCompressed,
    Registration,
    Repeated,
    Row,
    Served,
    SizeReport,
    Step,
    UnitCheck,
)

__all__ = [
    "Answer",
    "CheckReport",
    "Duplicates",
    "Entries",
    "Error",
    "FileCheck",
    "FileReport",
    "FileSize",
    "Finding",
    "Image",
    "ImageSize",
    "Kernel",
    "Level",
    "Library",
    "LinkedBy",
    "Load",
    "Module",
    "NotCompressed",
    "Registration",
    "Repeated",
    "Row",
    "Served",
    "SizeReport",
    "Step",
    "StrPath",
    "UnitCheck",
    "__version__",
    "check",
    "images",
    "inspect",
    "inspect_bytes",
    "program",
    "size",
]

__version__: str = _offld.VERSION
