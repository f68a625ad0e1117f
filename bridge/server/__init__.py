"""Serve a ToolBox over the Model Context Protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.server.code.limits import CodeLimits
    from bridge.server.http.app import http_app
    from bridge.server.http.mount import mount
    from bridge.server.http.probes import Probes
    from bridge.server.lists.search import ServerToolSearch
    from bridge.server.server import Server
    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.sqlite_store import SqliteTaskStore

__all__ = [
    "CodeLimits",
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
    "CodeLimits": "code.limits",
    "Probes": "http.probes",
    "Server": "server",
    "ServerToolSearch": "lists.search",
    "RedisTaskStore": "tasks.shared.redis_store",
    "SqliteTaskStore": "tasks.sqlite_store",
    "TaskOptions": "tasks.options",
    "http_app": "http.app",
    "mount": "http.mount",
}


def __getattr__(name: str) -> object:
    """Import names on first use, since a server over stdio needs no HTTP."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
