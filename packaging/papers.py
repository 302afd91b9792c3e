#!/usr/bin/env python3
"""Copies README.md and docs/ into a package directory, and adapts their links.

usage: papers.py DIR [NAME=PATH…]      NAME=PATH: a document that the package has under another path, relative to DIR

A link to a file that only the sources have (`../examples/c/list.c`) becomes plain text. A link to a file that does not exist is an error.
"""

import os
import re
import shutil
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\(([^()\s]+)\)")


def with_links(text: str, name: Path, folder: Path, placed: dict[str, str]) -> str:
    """Returns `text` with links that work in `folder`. `name`: the document's path, in `folder` as in the sources."""

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path = target.partition("#")[0]
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        source = os.path.normpath(name.parent / path)
        moved = placed.get(source)
        if moved is not None:
            return f"{mark}[{words}]({os.path.relpath(moved, name.parent)})"
        if (folder / source).exists():
            return found[0]
        if not (TOP / source).exists():
            sys.exit(f"papers: {name} links to {target}, which does not exist")
        return words

    # Code blocks (```) stay unchanged.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if index % 2 else LINK.sub(link, part) for index, part in enumerate(parts))


def main() -> None:
    folder = Path(sys.argv[1])
    placed = dict(word.split("=", 1) for word in sys.argv[2:])
    shutil.copytree(TOP / "docs", folder / "docs", ignore=shutil.ignore_patterns("SUMMARY.md"))
    papers = [*sorted((folder / "docs").rglob("*.md")), folder / "README.md", folder / "SECURITY.md"]
    for name in ("README.md", "SECURITY.md"):
        shutil.copyfile(TOP / name, folder / name)
    for paper in papers:
        paper.write_text(with_links(paper.read_text("utf-8"), paper.relative_to(folder), folder, placed), "utf-8")
    for path in [*papers, folder / "docs", *(folder / "docs").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


main()
