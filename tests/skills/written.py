"""Folders of skills for tests."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def instructions(name: str, description: str = "Do it well", body: str = "# Do it", more: str = "") -> str:
    """Return the text of a SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n{dedent(more)}---\n\n{body}\n"


def write_skill(root: Path, path: str, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Write a skill into a folder, and return its own; ``SKILL.md`` is written unless it is given."""
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    name = folder.name
    for file, content in {"SKILL.md": instructions(name), **(files or {})}.items():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
