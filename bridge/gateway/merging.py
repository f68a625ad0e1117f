"""Merging: the servers of several configurations, under names that are all different."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.client.server_config import ServerConfig


def merged_servers(groups: Iterable[tuple[str, Iterable[ServerConfig]]]) -> list[ServerConfig]:
    """The servers of several sources together.

    A server that two sources describe alike is one server. Of different ones with one name, the first keeps it, and
    the others have their source's name before it.

    Args:
        groups: For each source what it is called, such as a file's stem, and its servers.
    """
    merged: dict[str, ServerConfig] = {}
    for label, servers in groups:
        for server in servers:
            name = next(each for each in _names(label, server) if _is_free(each, server, merged))
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
