"""Finds the program that pip installed with this package."""

from __future__ import annotations

import os
import sysconfig

__all__ = ["program"]


def program() -> str:
    """The path of the ``offld`` program of this package."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    candidates = [
        # `pip install --target`
        os.path.join(here, "bin", "offld"),
        # next to lib/python3.X/site-packages: a virtual environment, the user's directory, a prefix
        os.path.normpath(os.path.join(here, "..", "..", "..", "bin", "offld")),
        os.path.join(sysconfig.get_path("scripts"), "offld"),
    ]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError("the program offld was not found: " + ", ".join(candidates))
