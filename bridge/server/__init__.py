"""Serve a ToolBox over the Model Context Protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.server.http.app import http_app
    from bridge.server.http.mount import mount
    from bridge.server.http.probes import Probes
    from bridge.server.lists.search import ServerToolSearch
    from bridge.server.server import Server
    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.sqlite_store import SqliteTaskStore
    from bridge.wire.extension import Extension

__all__ = [
    "Extension",
    "Probes",
    "RedisTaskStore",
    "Server",
    "ServerToolSearch",
    "SqliteTaskStore",
    "TaskOptions",
    "http_app",
    "mount",
]
_MODULES = {
    "Extension": "bridge.wire.extension",
    "Probes": "bridge.server.http.probes",
    "Server": "bridge.server.server",
    "ServerToolSearch": "bridge.server.lists.search",
    "RedisTaskStore": "bridge.server.tasks.shared.redis_store",
    "SqliteTaskStore": "bridge.server.tasks.sqlite_store",
    "TaskOptions": "bridge.server.tasks.options",
    "http_app": "bridge.server.http.app",
    "mount": "bridge.server.http.mount",
}


def __getattr__(name: str) -> object:
    """Import names on first use, since a server over stdio needs no HTTP."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
