"""The exception of this package."""

from __future__ import annotations

from typing import Optional, Sequence

__all__ = ["Error"]


class Error(Exception):
    """A damaged file, or an invalid argument.

    Errors of the operating system (no such file, permission denied) are ``OSError``, with its number and the file's name.
    """

    #: The whole message: the file, the member and section, and the defect.
    message: str
    #: The file, or the defect's location in it, if known.
    file: Optional[str]
    #: The defect's offset in ``file``, in bytes, if the format's reader reports it.
    offset: Optional[int]
    #: All messages, if a file has several defects.
    errors: Sequence[str]

    def __init__(
        self, message: str, file: Optional[str] = None, offset: Optional[int] = None, errors: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.offset = offset
        self.errors = tuple(errors) or (message,)


Error.__module__ = "offld"
