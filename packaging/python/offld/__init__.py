"""offld, the offload linker: reports on the device code (OpenMP, CUDA, HIP, SYCL) in files. pip also installs the program ``offld``.

>>> import offld
>>> for image in offld.images("package.whl"):
...     print(image.target, image.size)
>>> offld.check("package.whl", "gfx942")["answer"]
>>> offld.size("package.whl")["total"]["rows"]
>>> offld.diff("old.whl", "package.whl")["archs"]
>>> offld.gate("policy.toml", "package.whl")["violations"]

``python -m offld …`` runs the program of this package, even if PATH has another one.
"""

from __future__ import annotations

from offld import _offld
from offld._errors import Error
from offld._program import program
from offld._reports import FileReport, Image, StrPath, check, diff, gate, images, inspect, inspect_bytes, size
from offld._types import (
    Answer,
    ArchDiff,
    Change,
    CheckReport,
    DiffReport,
    Duplicates,
    Entries,
    ExternalFile,
    ExternalImages,
    Fact,
    Fault,
    FileCheck,
    FileSize,
    Finding,
    GateReport,
    ImageSize,
    Kernel,
    Level,
    Library,
    LinkedBy,
    Load,
    Module,
    NotCompressed,
    Pack,
    PackReference,
    Registration,
    Repeated,
    Row,
    RuleReport,
    Served,
    SizeReport,
    Step,
    UnitCheck,
    Violation,
)

__all__ = [
    "Answer",
    "ArchDiff",
    "Change",
    "CheckReport",
    "DiffReport",
    "Duplicates",
    "Entries",
    "Error",
    "ExternalFile",
    "ExternalImages",
    "Fact",
    "Fault",
    "FileCheck",
    "FileReport",
    "FileSize",
    "Finding",
    "GateReport",
    "Image",
    "ImageSize",
    "Kernel",
    "Level",
    "Library",
    "LinkedBy",
    "Load",
    "Module",
    "NotCompressed",
    "Pack",
    "PackReference",
    "Registration",
    "Repeated",
    "Row",
    "RuleReport",
    "Served",
    "SizeReport",
    "Step",
    "StrPath",
    "UnitCheck",
    "Violation",
    "__version__",
    "check",
    "diff",
    "gate",
    "images",
    "inspect",
    "inspect_bytes",
    "program",
    "size",
]

__version__: str = _offld.VERSION
