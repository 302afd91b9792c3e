"""Types of the reports: dictionaries with the members of the commands' JSON output (docs/reference/json.md)."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict

__all__ = [
    "Answer",
    "ArchDiff",
    "Change",
    "CheckReport",
    "DiffReport",
    "Duplicates",
    "Entries",
    "Fact",
    "FileCheck",
    "FileSize",
    "Finding",
    "GateReport",
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
    "RuleReport",
    "Served",
    "SizeReport",
    "Step",
    "UnitCheck",
    "Violation",
]

#: Whether device code will run. ``unknown``: offld cannot tell; ``unreadable``: a part of the file could not be read; ``not-applicable``: the
#: file does not decide the answer, but another file of the same wheel or directory does.
Answer = Literal["not-applicable", "yes", "unknown", "no", "unreadable"]
#: A level of a size report.
Level = Literal["file", "arch", "kind", "container", "unit", "template", "kernel", "section", "part", "member"]


class Kernel(TypedDict):
    """A kernel and its resource use. Values that its image does not store are ``None``."""

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
    wave_size: Optional[int]
    workgroup_processor_mode: Optional[int]
    barriers: Optional[int]


class _StepInAll(TypedDict):
    name: str
    offset: Optional[int]
    size: int


class _StepInSome(_StepInAll, total=False):
    file: Optional[str]
    version: Optional[int]
    compression: Optional[str]
    plain_size: Optional[int]


# `in` is a keyword in Python.
_StepIn = TypedDict("_StepIn", {"in": Literal["member", "compressed", "section", "symbol", "container", "file"]})


class Step(_StepInSome, _StepIn):
    """A part of the file that encloses an image; ``step["in"]`` is its kind."""


class Library(TypedDict):
    """A shared library that a program depends on."""

    name: str
    path: Optional[str]
    through: List[str]


class Registration(TypedDict):
    """A runtime that a file registers its images with."""

    members: List[str]
    runtime: str
    symbol: str
    found: Literal["here", "library", "elsewhere"]
    libraries: List[Library]


class Entries(TypedDict):
    """An entry table of host code: the kernels and variables that it registers."""

    members: List[str]
    section: str
    entry_size: Optional[int]
    count: Optional[int]
    llvm: Optional[str]


class Module(TypedDict):
    """Code that registers itself once a device link has it: relocatable code of nvcc, or of HIP's old driver."""

    members: List[str]
    runtime: str
    id: str
    linked: bool


class LinkedBy(TypedDict):
    """The offld that linked device code of the file."""

    members: List[str]
    offld: str
    device_compiler: Optional[str]


class Pack(TypedDict):
    """A kpack archive with code of a program."""

    file: str
    architectures: List[str]
    images: int


class PackReference(TypedDict):
    """A program's reference to kpack archives."""

    members: List[str]
    binary: str
    search_paths: List[str]
    registrations: List[int]
    packs: List[Pack]


class ExternalFile(TypedDict):
    """A file beside a program, with an image."""

    name: str
    target: str
    size: int
    found: Optional[bool]


class ExternalImages(TypedDict):
    """The images of one registration that are in files beside the program."""

    members: List[str]
    runtime: str
    directory: str
    files: List[ExternalFile]


class Fault(TypedDict):
    """A contradiction between a program and the files with its code, or in a kpack archive."""

    members: List[str]
    what: str
    text: str


class FileSize(TypedDict):
    """The size of a file."""

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
    """A row of a size report: bytes with the same values down to its level. ``rows`` is its breakdown."""

    mangled: str
    rows: List[Row]


class ImageSize(TypedDict):
    """The size of an image."""

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
    """Bytes that occur more than once."""

    kernel: str


class Served(TypedDict):
    """An architecture whose devices can also load the images of another one."""

    arch: str
    by: str
    images: int
    file: int
    inflated: int


class NotCompressed(TypedDict):
    """Uncompressed containers of a format."""

    container: str
    count: int
    size: int
    estimated_saving: int


class Duplicates(TypedDict):
    """Duplicate data, and possible savings."""

    images: List[Repeated]
    kernels: List[Repeated]
    served: List[Served]
    not_compressed: List[NotCompressed]


class SizeReport(TypedDict):
    """The output of ``offld size --json``."""

    schema: int
    generator: str
    files: List[FileSize]
    total: Row
    images: List[ImageSize]
    duplicates: Duplicates
    budgets: List[Dict[str, Any]]


class Load(TypedDict):
    """The image that a device would load from a unit, and the reason."""

    device: str
    answer: Answer
    image: Optional[int]
    text: str


class UnitCheck(TypedDict):
    """A set of images of which a runtime loads one."""

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
    """A reason for an answer, or a note (with the answer ``yes``)."""

    what: str
    answer: Answer
    members: List[str]
    runtime: Optional[str]
    image: Optional[int]
    kernel: Optional[str]
    text: str


class FileCheck(TypedDict):
    """The answer for a file, or for a member of a zip file or tar archive."""

    file: str
    type: str
    members: List[str]
    answer: Answer
    units: List[UnitCheck]
    findings: List[Finding]
    errors: List[str]
    registered: List[Dict[str, Any]]


class CheckReport(TypedDict):
    """The output of ``offld check --json``."""

    schema: int
    generator: str
    answer: Answer
    devices: List[str]
    files: List[FileCheck]


class Fact(TypedDict):
    """A number about a kernel that differs. For a kernel in one build only, every number is listed."""

    fact: str
    old: Optional[int]
    new: Optional[int]


class _Change(TypedDict):
    change: Literal["new", "gone", "renamed", "changed"]
    kernel: str
    mangled: str
    old_name: Optional[str]
    place: str
    code_changed: Optional[bool]
    facts: List[Fact]


class Change(_Change, total=False):
    """A kernel that differs."""

    #: The instructions that differ, if requested.
    code_diff: str


class ArchDiff(TypedDict):
    """The comparison of the kernels for an architecture."""

    arch: str
    old_kernels: int
    new_kernels: int
    unchanged: int
    unknown: int
    changes: List[Change]


class DiffReport(TypedDict):
    """The output of ``offld diff --json``."""

    schema: int
    generator: str
    old_files: List[str]
    new_files: List[str]
    archs: List[ArchDiff]


class RuleReport(TypedDict):
    """The use of a rule of a policy."""

    rule: str
    files: int
    violations: int


class Violation(TypedDict):
    """A requirement that a file does not meet."""

    rule: str
    requirement: str
    file: str
    kernel: Optional[str]
    value: str
    limit: str


class GateReport(TypedDict):
    """The output of ``offld gate --json``."""

    schema: int
    generator: str
    policy: str
    rules: List[RuleReport]
    violations: List[Violation]
    errors: List[str]
