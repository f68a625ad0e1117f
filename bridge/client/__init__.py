"""Remote MCP servers: what a configuration says of them, connections that heal, and their tools as local ones.

The names are loaded when they are first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.client.config import (
        HttpTransport,
        InputDefinition,
        InputSource,
        ServerConfig,
        ServersConfig,
        StdioTransport,
        config_json_schema,
        load_config,
        parse_config,
    )
    from bridge.client.connection import Connection
    from bridge.client.handlers import ClientHandlers
    from bridge.client.healing import Healing
    from bridge.client.server_config import MemoryTransport
    from bridge.client.states import ConnectionState, ConnectionStatus, ServerInfo, ToolListing

__all__ = [
    "ClientHandlers",
    "Connection",
    "ConnectionState",
    "ConnectionStatus",
    "Healing",
    "HttpTransport",
    "InputDefinition",
    "InputSource",
    "MemoryTransport",
    "ServerConfig",
    "ServerInfo",
    "ServersConfig",
    "StdioTransport",
    "ToolListing",
    "config_json_schema",
    "load_config",
    "parse_config",
]

_HOMES = dict.fromkeys(__all__, "bridge.client.config") | {
    "ClientHandlers": "bridge.client.handlers",
    "Connection": "bridge.client.connection",
    "ConnectionState": "bridge.client.states",
    "ConnectionStatus": "bridge.client.states",
    "Healing": "bridge.client.healing",
    "MemoryTransport": "bridge.client.server_config",
    "ServerInfo": "bridge.client.states",
    "ToolListing": "bridge.client.states",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
