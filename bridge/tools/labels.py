"""Labels of tools, resources and prompts: tags and a version, kept in their metadata, which MCP sends in ``_meta``.

The labels of FastMCP's servers, in ``_meta.fastmcp``, are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from bridge.errors import DefinitionError
from bridge.text import short_repr

TAGS_META_KEY = "io.github.mcp-toolbridge/tags"
"""Key of the tags in ``_meta``: a sorted list of texts."""
VERSION_META_KEY = "io.github.mcp-toolbridge/version"
"""Key of the version in ``_meta``: of a listed item, or in a request, of the item to use."""
VERSIONS_META_KEY = "io.github.mcp-toolbridge/versions"
"""Key of all versions of a listed item, the newest first, if there are several."""
_FASTMCP_KEYS = ("fastmcp", "_fastmcp")
_PART = re.compile(r"\d+|[a-z]+")
_NO_NUMBER = re.compile(r"(?:\.0+)+(?![.\d])")
"""Zeros at the end of the numbers of a version, which say nothing."""
_NO_TAGS: frozenset[str] = frozenset()


def labelled(metadata: Mapping[str, Any], tags: Any, version: Any) -> Mapping[str, Any]:
    """Return metadata with labels.

    Raises:
        DefinitionError: The tags are no collection of texts, or the version is no text.
    """
    if (
        not isinstance(tags, Collection)
        or isinstance(tags, str)
        or not all(isinstance(tag, str) and tag for tag in tags)
    ):
        raise DefinitionError(f"tags must be a set of texts, such as {{'public'}}, not {short_repr(tags)}")
    if version is not None and not (isinstance(version, str) and version):
        raise DefinitionError(f"version must be text, such as '2.0', not {short_repr(version)}")
    labels: dict[str, Any] = {TAGS_META_KEY: sorted(set(tags))} if tags else {}
    if version is not None:
        labels[VERSION_META_KEY] = version
    return {**metadata, **labels} if labels else metadata


def tags_in(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the tags in the metadata of an item."""
    tags = metadata.get(TAGS_META_KEY, _of_fastmcp(metadata, "tags"))
    if not isinstance(tags, list | tuple | set | frozenset):
        return _NO_TAGS
    return frozenset(tag for tag in tags if isinstance(tag, str))


def version_in(metadata: Mapping[str, Any]) -> str | None:
    """Return the version in the metadata of an item, or in the ``_meta`` of a request; None for none."""
    version = metadata.get(VERSION_META_KEY, _of_fastmcp(metadata, "version"))
    return version if isinstance(version, str) and version else None


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key by which versions are sorted: 1.10 is newer than 1.9, 2 than 2.0b1, and 2.0.1 than 2."""
    parts = _PART.findall(_NO_NUMBER.sub("", version.lower().removeprefix("v")))
    return (*((2, int(part), "") if part.isdigit() else (0, 0, part) for part in parts), (1, 0, ""))


def _of_fastmcp(metadata: Mapping[str, Any], name: str) -> Any:
    for key in _FASTMCP_KEYS:
        if key in metadata and isinstance(labels := metadata[key], Mapping):
            return labels.get(name)
    return None
