"""The reports as types: dictionaries with the members that the commands print as JSON (docs/inspect-json.md, docs/size.md, docs/check.md)."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict

__all__ = [
    "Answer",
    "CheckReport",
    "Duplicates",
    "Entries",
    "FileCheck",
    "FileSize",
    "Finding",
    "ImageSize",
    "Kernel",
    "Level",
    "Library",
    "LinkedBy",
    "Load",
    "NotCompressed",
    "Registration",
    "Repeated",
    "Row",
    "Served",
    "SizeReport",
    "Step",
    "UnitCheck",
]

#: Whether device code will run. ``unknown`` is never yes; ``unreadable``: a part of the file could not be read.
Answer = Literal["yes", "unknown", "no", "unreadable"]
#: What bytes can be told apart by.
Level = Literal["file", "arch", "kind", "container", "unit", "template", "kernel", "section", "part"]


class Kernel(TypedDict):
    """A kernel and what it takes of the device; what its image does not say is ``None``."""

    name: str
    demangled: Optional[str]
    code_size: Optional[int]
    registers: Optional[int]
    vgprs: Optional[int]
    agprs: Optional[int]
    sgprs: Optional[int]
    spilled_vgprs: Optional[int]
    spilled_sgprs: Optional[int]
    shared: Optional[int]
    scratch: Optional[int]
    arguments: Optional[int]
    max_workgroup: Optional[int]


class _StepInAll(TypedDict):
    name: str
    offset: Optional[int]
    size: int


class _StepInSome(_StepInAll, total=False):
    file: Optional[str]
    version: Optional[int]
    compression: Optional[str]
    plain_size: Optional[int]


# `in` is no name in Python.
_StepIn = TypedDict("_StepIn", {"in": Literal["member", "compressed", "section", "symbol", "container"]})


class Step(_StepInSome, _StepIn):
    """One of the things that enclose an image; ``step["in"]`` says what kind of thing."""


class Library(TypedDict):
    """A library that a program needs."""

    name: str
    path: Optional[str]
    through: List[str]


class Registration(TypedDict):
    """A runtime that a file hands its images to."""

    members: List[str]
    runtime: str
    symbol: str
    found: Literal["here", "library", "elsewhere"]
    libraries: List[Library]


class Entries(TypedDict):
    """A table of what host code calls and registers."""

    members: List[str]
    section: str
    entry_size: Optional[int]
    count: Optional[int]
    llvm: Optional[str]


class LinkedBy(TypedDict):
    """An offld that linked device code of the file."""

    members: List[str]
    offld: str
    device_compiler: Optional[str]


class FileSize(TypedDict):
    """A file whose bytes were counted."""

    file: str
    type: str
    size: int
    inflated: int
    errors: List[str]


class _Row(TypedDict):
    name: str
    level: str
    file: int
    inflated: int
    images: int
    kernels: int


class Row(_Row, total=False):
    """Bytes that have everything in common down to a level; ``rows`` are what they are made of."""

    mangled: str
    rows: List[Row]


class ImageSize(TypedDict):
    """The bytes of an image."""

    input: str
    place: str
    kind: str
    triple: str
    target: str
    arch: str
    format: str
    file: int
    inflated: int


class _Repeated(TypedDict):
    arch: str
    copies: int
    size: int
    wasted_file: int
    wasted_inflated: int
    places: List[str]


class Repeated(_Repeated, total=False):
    """Bytes that are there more than once."""

    kernel: str


class Served(TypedDict):
    """An architecture whose devices also take the images of another one."""

    arch: str
    by: str
    images: int
    file: int
    inflated: int


class NotCompressed(TypedDict):
    """Containers of a format that are not compressed."""

    container: str
    count: int
    size: int
    estimated_saving: int


class Duplicates(TypedDict):
    """What is there twice, and what could be smaller."""

    images: List[Repeated]
    kernels: List[Repeated]
    served: List[Served]
    not_compressed: List[NotCompressed]


class SizeReport(TypedDict):
    """What ``offld size --json`` prints."""

    schema: int
    generator: str
    files: List[FileSize]
    total: Row
    images: List[ImageSize]
    duplicates: Duplicates
    budgets: List[Dict[str, Any]]


class Load(TypedDict):
    """What a device would load of a unit, and why."""

    device: str
    answer: Answer
    image: Optional[int]
    text: str


class UnitCheck(TypedDict):
    """Images of which a runtime takes one."""

    members: List[str]
    runtime: str
    place: str
    basis: Literal["entries", "images", "none"]
    kernels: Optional[int]
    images: List[int]
    targets: List[str]
    answer: Answer
    loads: List[Load]


class Finding(TypedDict):
    """Something that decides an answer, or a note (its answer is ``yes``)."""

    what: str
    answer: Answer
    members: List[str]
    runtime: Optional[str]
    image: Optional[int]
    kernel: Optional[str]
    text: str


class FileCheck(TypedDict):
    """The answer on a file, or on a member of a zip file or tar archive."""

    file: str
    type: str
    members: List[str]
    answer: Answer
    units: List[UnitCheck]
    findings: List[Finding]
    errors: List[str]
    registered: List[Dict[str, Any]]


class CheckReport(TypedDict):
    """What ``offld check --json`` prints."""

    schema: int
    generator: str
    answer: Answer
    devices: List[str]
    files: List[FileCheck]
