"""The functions of this package: each calls the library and returns its report with the types of ``_types``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

from offld import _offld
from offld._errors import Error
from offld._types import (
    CheckReport,
    DiffReport,
    Entries,
    ExternalImages,
    Fault,
    GateReport,
    Kernel,
    Level,
    LinkedBy,
    Module,
    PackReference,
    Registration,
    SizeReport,
    Step,
)

__all__ = ["FileReport", "Image", "StrPath", "check", "diff", "gate", "images", "inspect", "inspect_bytes", "size"]

#: A path. Names that are not text in the file system's encoding are bytes, or ``str`` as from ``os.fsdecode``.
StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@dataclass(frozen=True, eq=False)
class Image:
    """A device image in a file, or the host entry of a bundle (``is_device`` is false)."""

    #: The file, as passed by the caller.
    file: str
    #: The image's number in the file, from 0.
    index: int
    #: The programming models: ``openmp``, ``cuda``, ``hip``, ``sycl``; or ``host``. Empty if the container does not store them.
    kinds: Tuple[str, ...]
    #: The triple of the device; empty if unknown.
    triple: str
    #: The architecture or target id, such as ``gfx90a:xnack+`` or ``sm_90``; empty for any.
    target: str
    #: The format, detected from the bytes: ``elf``, ``cubin``, ``bitcode``, ``spirv``, ``ptx``, …
    format: str
    #: The machine of an ELF file.
    machine: Optional[str]
    #: The size in bytes.
    size: int
    #: The size in the file of the compressed data that contains the image.
    compressed_size: Optional[int]
    #: The offset of the image's bytes in the file; ``None`` if they were decompressed.
    offset: Optional[int]
    #: Everything that encloses the image, the outermost first.
    path: Tuple[Step, ...]
    #: The enclosing members of archives, zip files and tar archives, the outermost first.
    members: Tuple[str, ...]
    #: The innermost enclosing section.
    section: Optional[str]
    #: The innermost enclosing container.
    container: Optional[str]
    #: The id in a bundle, as stored.
    id: Optional[str]
    #: The tools that made the image, as they name themselves.
    producers: Tuple[str, ...]
    #: The image kind in the OffloadBinary.
    stored_as: Optional[str]
    #: The SHA-256 of the bytes, in hexadecimal digits; ``None`` if only headers were read.
    sha256: Optional[str]
    #: The flags of the OffloadBinary entry.
    flags: Optional[int]
    #: The strings of the OffloadBinary entry.
    strings: Mapping[str, str]
    #: The kernels, if requested and the image is an ELF file.
    kernels: Optional[Tuple[Kernel, ...]]
    #: Whether the image is in a section of plain data, recognized only by its headers: the program loads it by itself.
    in_data: bool
    _inspected: _offld.Inspected = field(repr=False)

    @property
    def is_device(self) -> bool:
        """Whether the image is device code. The host entry of a bundle is not."""
        return "host" not in self.kinds

    def read(self) -> bytes:
        """Returns the bytes. The file must not have changed since it was inspected."""
        return self._inspected.read(self.index)

    def write(self, path: StrPath) -> None:
        """Writes the bytes to a file, which appears complete or not at all. An existing file is replaced."""
        self._inspected.write(self.index, os.fsencode(path))

    def __reduce__(self) -> Tuple[Any, ...]:
        raise TypeError("an image refers to an open file and cannot be pickled; read() gives its bytes")


@dataclass(frozen=True, eq=False)
class FileReport:
    """The device code in a file."""

    #: The file, as passed by the caller.
    file: str
    #: The type: ``elf-shared``, ``archive``, ``zip`` (also for a wheel), …
    type: str
    #: The images, in file order.
    images: Tuple[Image, ...]
    #: The runtimes that the file registers images with.
    registrations: Tuple[Registration, ...]
    #: The entry tables.
    entries: Tuple[Entries, ...]
    #: The modules that register themselves: those of nvcc's relocatable code, and of HIP's old driver.
    modules: Tuple[Module, ...]
    #: The linkers of the device code, from offld's notes.
    linked_by: Tuple[LinkedBy, ...]
    #: The references to kpack archives.
    kpack: Tuple[PackReference, ...]
    #: The images in files beside the programs.
    external: Tuple[ExternalImages, ...]
    #: The contradictions between programs and the files with their code.
    faults: Tuple[Fault, ...]
    #: Messages about unreadable parts, each with its location in the file.
    errors: Tuple[str, ...]


def _report(inspected: _offld.Inspected) -> FileReport:
    found: Dict[str, Any] = json.loads(inspected.json())
    name: str = found["file"]

    def image(given: Dict[str, Any]) -> Image:
        # Only the command extracts images.
        del given["extracted"]
        values: Dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        return Image(file=name, _inspected=inspected, **values)

    return FileReport(
        file=name,
        type=found["type"],
        images=tuple(image(given) for given in found["images"]),
        registrations=tuple(found["registrations"]),
        entries=tuple(found["entries"]),
        modules=tuple(found["modules"]),
        linked_by=tuple(found["linked_by"]),
        kpack=tuple(found["kpack"]),
        external=tuple(found["external"]),
        faults=tuple(found["faults"]),
        errors=tuple(found["errors"]),
    )


def inspect(
    path: StrPath, *, kernels: bool = False, headers_only: bool = False, max_unpacked: Optional[int] = None
) -> FileReport:
    """Reports the device code in a file, with everything that ``offld inspect --json`` reports.

    It reads objects, libraries, programs, archives, wheels, packages and bundles, down to the images. Damaged parts are in ``errors`` of
    the report, next to the contents of the intact parts.

    ``kernels``: also list the kernels of images. ``headers_only``: compute no hashes and decompress only if necessary; images then
    have no bytes to read. ``max_unpacked``: the limit on decompressed data, in bytes.

    Raises ``OSError`` if the file cannot be opened.
    """
    return _report(_offld.inspect(os.fsencode(path), kernels, headers_only, max_unpacked))


def inspect_bytes(
    data: Union[bytes, bytearray, memoryview],
    *,
    name: StrPath = "bytes",
    kernels: bool = False,
    headers_only: bool = False,
    max_unpacked: Optional[int] = None,
) -> FileReport:
    """Reports the device code in ``data``, as for a file with these contents and the name ``name``."""
    return _report(_offld.inspect_bytes(os.fsencode(name), bytes(data), kernels, headers_only, max_unpacked))


def images(path: StrPath, *, kernels: bool = False) -> List[Image]:
    """Returns the images in a file.

    Raises ``OSError`` if the file cannot be opened, and ``Error`` if a part of it cannot be read. Use :func:`inspect` to get the
    readable parts.
    """
    report = inspect(path, kernels=kernels)
    if report.errors:
        more = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
        raise Error(report.errors[0] + more, report.file, errors=report.errors)
    return list(report.images)


def size(
    path: StrPath,
    *,
    by: Sequence[Level] = ("arch",),
    sort: str = "file",
    filter: Optional[str] = None,
    max_unpacked: Optional[int] = None,
) -> SizeReport:
    """Reports the sizes of device code in a file, or in the files of a directory, as ``offld size --json`` does.

    ``by``: the levels of ``rows``, the outermost first. ``sort``: ``file`` sorts by bytes in the file, ``inflated`` by uncompressed
    size. ``filter``: a regular expression that kernels, translation units, sections or architectures must match.

    Damaged parts of a file are in its ``errors``. Raises ``OSError`` if the file or directory cannot be opened.
    """
    if sort not in ("file", "inflated"):
        raise Error(f"invalid sort order '{sort}': expected 'file' or 'inflated'")
    text = _offld.size(os.fsencode(path), list(by), sort == "inflated", filter, max_unpacked)
    return cast(SizeReport, json.loads(text))


def check(path: StrPath, *devices: str) -> CheckReport:
    """Checks whether the device code of a file, or of the files in a directory, will run, as ``offld check --json`` does.

    With devices (``"gfx942"``, ``"sm_90"``, ``"native"`` for those of this machine), the answer says whether each of them would load an
    image, and which. Without devices, it says whether the file's images have all registered kernels. ``report["answer"]`` is the overall
    answer, and each of ``report["files"]`` has its own, with reasons.

    The answer for a damaged file is ``unreadable``. Raises ``OSError`` if the file or directory cannot be opened, and ``Error`` for an
    invalid device.
    """
    return cast(CheckReport, json.loads(_offld.check(os.fsencode(path), list(devices))))


def diff(
    old: StrPath,
    new: StrPath,
    *,
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    changed_code: bool = False,
    max_unpacked: Optional[int] = None,
) -> DiffReport:
    """Compares the kernels of two builds, as ``offld diff --json`` does.

    A build is a file, a directory, or a list that ``offld diff --save`` wrote. ``only`` and ``exclude`` are patterns of files and of
    members of wheels. ``changed_code`` adds the instructions that differ. Raises ``OSError`` if a build cannot be opened, and ``Error`` if
    it is damaged or has no device code.
    """
    text = _offld.diff(os.fsencode(old), os.fsencode(new), list(only), list(exclude), changed_code, max_unpacked)
    return cast(DiffReport, json.loads(text))


def gate(
    policy: StrPath,
    *files: StrPath,
    baseline: Sequence[StrPath] = (),
    max_unpacked: Optional[int] = None,
) -> GateReport:
    """Checks files and directories against a policy, as ``offld gate --json`` does. They meet it if ``report["violations"]`` is empty.

    ``baseline`` is an earlier build, for policies that compare. Raises ``OSError`` if a file cannot be opened, and ``Error`` if the policy
    is invalid.
    """
    paths = [os.fsencode(file) for file in files]
    text = _offld.gate(os.fsencode(policy), paths, [os.fsencode(old) for old in baseline], max_unpacked)
    return cast(GateReport, json.loads(text))
