"""The functions of this package: each calls the library and gives its report the types of ``_types``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

from offld import _offld
from offld._errors import Error
from offld._types import CheckReport, Entries, Kernel, Level, LinkedBy, Registration, SizeReport, Step

__all__ = ["FileReport", "Image", "StrPath", "check", "images", "inspect", "inspect_bytes", "size"]

#: A file's name. Names that are no text in the file system's encoding are bytes, or ``str`` as ``os.fsdecode`` makes it.
StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@dataclass(frozen=True, eq=False)
class Image:
    """A device image in a file, or (``is_device`` is false) what a bundle has for the host."""

    #: The file that it is in, as it was named.
    file: str
    #: Its number in the file, from 0.
    index: int
    #: The programming models it is for: ``openmp``, ``cuda``, ``hip``, ``sycl``; or ``host``. Empty if its container does not say.
    kinds: Tuple[str, ...]
    #: The triple of its device; empty if unknown.
    triple: str
    #: The processor or target id, such as ``gfx90a:xnack+`` or ``sm_90``; empty for any.
    target: str
    #: Its format by its bytes: ``elf``, ``cubin``, ``bitcode``, ``spirv``, ``ptx``, …
    format: str
    #: An ELF file's machine.
    machine: Optional[str]
    #: Its size in bytes.
    size: int
    #: The size in the file of the compressed thing that it came out of.
    compressed_size: Optional[int]
    #: Where its bytes start in the file; ``None`` if they were inflated.
    offset: Optional[int]
    #: Everything that it is in, the outermost first.
    path: Tuple[Step, ...]
    #: The members of archives, zip files and tar archives that it is in, the outermost first.
    members: Tuple[str, ...]
    #: The innermost section that it is in.
    section: Optional[str]
    #: The innermost container that it is in.
    container: Optional[str]
    #: Its id in a bundle, as stored.
    id: Optional[str]
    #: The tools that made it, as they name themselves.
    producers: Tuple[str, ...]
    #: What its OffloadBinary says that it is.
    stored_as: Optional[str]
    #: The SHA-256 of its bytes, in hexadecimal digits; ``None`` where only headers were read.
    sha256: Optional[str]
    #: The flags of its OffloadBinary entry.
    flags: Optional[int]
    #: The strings of its OffloadBinary entry.
    strings: Mapping[str, str]
    #: Its kernels, if they were asked for and it is an ELF file.
    kernels: Optional[Tuple[Kernel, ...]]
    _inspected: _offld.Inspected = field(repr=False)

    @property
    def is_device(self) -> bool:
        """Whether it is device code. What a bundle has for the host is not."""
        return "host" not in self.kinds

    def read(self) -> bytes:
        """Its bytes. The file must be as it was when it was inspected."""
        return self._inspected.read(self.index)

    def write(self, path: StrPath) -> None:
        """Writes its bytes to a file, which appears whole or not at all and takes the place of one that is there."""
        self._inspected.write(self.index, os.fsencode(path))

    def __reduce__(self) -> Tuple[Any, ...]:
        raise TypeError("an image refers to an open file and cannot be pickled; read() gives its bytes")


@dataclass(frozen=True, eq=False)
class FileReport:
    """What is in a file."""

    #: The file, as it was named.
    file: str
    #: Its type: ``elf-shared``, ``archive``, ``zip`` (a wheel is one, too), …
    type: str
    #: Its images, in their order in the file.
    images: Tuple[Image, ...]
    #: The runtimes that it hands images to.
    registrations: Tuple[Registration, ...]
    #: The tables of what it registers.
    entries: Tuple[Entries, ...]
    #: Who linked its device code, as offld notes it.
    linked_by: Tuple[LinkedBy, ...]
    #: What could not be read, each with its place in the file.
    errors: Tuple[str, ...]


def _report(inspected: _offld.Inspected) -> FileReport:
    found: Dict[str, Any] = json.loads(inspected.json())
    name: str = found["file"]

    def image(given: Dict[str, Any]) -> Image:
        # Where it was written to by a command; nothing of that here.
        del given["extracted"]
        values: Dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
        return Image(file=name, _inspected=inspected, **values)

    return FileReport(
        file=name,
        type=found["type"],
        images=tuple(image(given) for given in found["images"]),
        registrations=tuple(found["registrations"]),
        entries=tuple(found["entries"]),
        linked_by=tuple(found["linked_by"]),
        errors=tuple(found["errors"]),
    )


def inspect(
    path: StrPath, *, kernels: bool = False, headers_only: bool = False, max_unpacked: Optional[int] = None
) -> FileReport:
    """What is in a file: everything that ``offld inspect --json`` says of it.

    It goes into objects, libraries, programs, archives, wheels, packages and bundles, down to the images. What is damaged in the file is in
    ``errors`` of the report, beside what the rest holds.

    ``kernels``: list the kernels of images as well. ``headers_only``: no hashes, and nothing is unpacked that need not be; then images
    have no bytes to read. ``max_unpacked``: how many bytes may come out of what is compressed, at the most.

    Raises ``OSError`` when the file cannot be opened.
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
    """What would be in a file with these contents, which the report calls ``name``."""
    return _report(_offld.inspect_bytes(os.fsencode(name), bytes(data), kernels, headers_only, max_unpacked))


def images(path: StrPath, *, kernels: bool = False) -> List[Image]:
    """The images in a file.

    Raises ``OSError`` when the file cannot be opened, and ``Error`` when a part of it cannot be read: :func:`inspect` tells what could
    be read all the same.
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
    """What the bytes of a file, or of the files in a folder, belong to: what ``offld size --json`` says.

    ``by``: what makes a level of ``rows`` each, the outermost first. ``sort``: whether the largest is what takes most of the ``file``,
    or what is largest ``inflated``. ``filter``: a regular expression that kernels, units, sections or architectures must match.

    What is damaged in a file is in its ``errors``. Raises ``OSError`` when the file or folder cannot be opened.
    """
    if sort not in ("file", "inflated"):
        raise Error(f"sizes are sorted by `file` or `inflated`, and not by `{sort}`")
    text = _offld.size(os.fsencode(path), list(by), sort == "inflated", filter, max_unpacked)
    return cast(SizeReport, json.loads(text))


def check(path: StrPath, *devices: str) -> CheckReport:
    """Whether the device code of a file, or of the files in a folder, will run: what ``offld check --json`` says.

    With devices (``"gfx942"``, ``"sm_90"``, ``"native"`` for those of this machine) the answer is whether each of them would load an image,
    and which; without, whether the kernels that the file registers are in its images. ``report["answer"]`` is the answer on everything, and
    each of ``report["files"]`` has its own, with the reasons.

    What is damaged in a file makes its answer ``unreadable``. Raises ``OSError`` when the file or folder cannot be opened, ``Error`` for a
    device that is none.
    """
    return cast(CheckReport, json.loads(_offld.check(os.fsencode(path), list(devices))))
