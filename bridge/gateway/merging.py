"""Servers of several configurations under unique names."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.client.config.servers import ServerConfig


def merged_servers(groups: Iterable[tuple[str, Iterable[ServerConfig]]]) -> list[ServerConfig]:
    """Merge the servers of several sources under unique names.

    Identical servers of two sources are merged. If different servers have the same name, the first keeps it, and the
    source's name is added to the others.

    Args:
        groups: For each source its name, such as a file's stem, and its servers.
    """
    merged: dict[str, ServerConfig] = {}
    for label, servers in groups:
        for server in servers:
            name = next(candidate for candidate in _names(label, server) if _is_free(candidate, server, merged))
            merged[name] = server if name == server.name else replace(server, name=name)
    return list(merged.values())


def _names(label: str, server: ServerConfig) -> Iterator[str]:
    yield server.name
    yield f"{label}-{server.name}"
    for number in count(2):
        yield f"{label}-{server.name}-{number}"


def _is_free(name: str, server: ServerConfig, merged: dict[str, ServerConfig]) -> bool:
    present = merged.get(name)
    return present is None or present == replace(server, name=name)
