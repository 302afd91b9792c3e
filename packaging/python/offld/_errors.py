"""The exception of this package."""

from __future__ import annotations

from typing import Optional, Sequence

__all__ = ["Error"]


class Error(Exception):
    """What cannot be read, or was asked for wrongly.

    What the system refuses (there is no such file, it may not be read) is an ``OSError`` with its number and the file's name.
    """

    #: The whole message: which file, which member and section, and what is wrong.
    message: str
    #: The file, or where in it the fault is, as far as that is known.
    file: Optional[str]
    #: How many bytes into that the fault is, where the reader of the format tells it.
    offset: Optional[int]
    #: Every message, where a file has several faults.
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
