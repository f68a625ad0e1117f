"""Client for remote MCP servers: configuration, connections with automatic reconnection, and remote tools.

Names are imported on first use (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.client.auth.grants import ClientCredentials, IdentityAssertion, OAuthLogin
    from bridge.client.blocking import BlockingToolProvider, connect
    from bridge.client.config.loading import load_config, parse_config
    from bridge.client.config.schema import config_json_schema
    from bridge.client.config.servers import ServerConfig, ServersConfig
    from bridge.client.config.variables import InputDefinition, InputSource
    from bridge.client.connection.call import CallOptions
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.state import (
        ConnectionState,
        ConnectionStatus,
        ReconnectPolicy,
        ServerInfo,
        ToolListing,
    )
    from bridge.client.provider import McpToolProvider
    from bridge.client.remote_tool import RemoteExecutor
    from bridge.client.resources import RemoteResource
    from bridge.client.tool_catalog import RemoteName, ServerStatus, ToolsChange
    from bridge.client.transports.http import HttpTransport
    from bridge.client.transports.memory import MemoryTransport
    from bridge.client.transports.stdio import StdioTransport
    from bridge.client.transports.transport import UnusableTransport

__all__ = [
    "BlockingToolProvider",
    "CallOptions",
    "ClientCredentials",
    "ClientHandlers",
    "Connection",
    "ConnectionState",
    "ConnectionStatus",
    "HttpTransport",
    "IdentityAssertion",
    "InputDefinition",
    "InputSource",
    "McpToolProvider",
    "MemoryTransport",
    "OAuthLogin",
    "ReconnectPolicy",
    "RemoteExecutor",
    "RemoteName",
    "RemoteResource",
    "ServerConfig",
    "ServerInfo",
    "ServerStatus",
    "ServersConfig",
    "StdioTransport",
    "ToolListing",
    "ToolsChange",
    "UnusableTransport",
    "config_json_schema",
    "connect",
    "load_config",
    "parse_config",
]

_HOMES = {
    "BlockingToolProvider": "bridge.client.blocking",
    "CallOptions": "bridge.client.connection.call",
    "ClientCredentials": "bridge.client.auth.grants",
    "ClientHandlers": "bridge.client.connection.handlers",
    "Connection": "bridge.client.connection.connection",
    "ConnectionState": "bridge.client.connection.state",
    "ConnectionStatus": "bridge.client.connection.state",
    "ReconnectPolicy": "bridge.client.connection.state",
    "HttpTransport": "bridge.client.transports.http",
    "IdentityAssertion": "bridge.client.auth.grants",
    "InputDefinition": "bridge.client.config.variables",
    "InputSource": "bridge.client.config.variables",
    "McpToolProvider": "bridge.client.provider",
    "MemoryTransport": "bridge.client.transports.memory",
    "OAuthLogin": "bridge.client.auth.grants",
    "RemoteExecutor": "bridge.client.remote_tool",
    "RemoteName": "bridge.client.tool_catalog",
    "RemoteResource": "bridge.client.resources",
    "ServerConfig": "bridge.client.config.servers",
    "ServerInfo": "bridge.client.connection.state",
    "ServerStatus": "bridge.client.tool_catalog",
    "ServersConfig": "bridge.client.config.servers",
    "StdioTransport": "bridge.client.transports.stdio",
    "ToolListing": "bridge.client.connection.state",
    "ToolsChange": "bridge.client.tool_catalog",
    "UnusableTransport": "bridge.client.transports.transport",
    "config_json_schema": "bridge.client.config.schema",
    "connect": "bridge.client.blocking",
    "load_config": "bridge.client.config.loading",
    "parse_config": "bridge.client.config.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
