"""Digest of the files of the inspector's page, which its pictures were taken of."""

from __future__ import annotations

import hashlib

from tests.markdown import ROOT

STATIC = ROOT / "bridge" / "inspector" / "static"
RECORDED = ROOT / "docs" / "command-line" / "pictures" / "page.sha256"
"""Digest of the page that the pictures show; ``make pictures`` writes it."""


def page_digest() -> str:
    """Return the digest of all files of the page, without the libraries that it uses."""
    found = hashlib.sha256()
    for path in sorted(STATIC.rglob("*")):
        if path.is_file() and "vendor" not in path.parts:
            found.update(path.relative_to(STATIC).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()
