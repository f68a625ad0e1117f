"""Client for remote MCP servers: configuration, connections with automatic reconnection, and remote tools.

Names are imported on first use (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.client.auth.grants import (
        AssertionExchange,
        ClientCredentials,
        IdentityAssertion,
        OAuthLogin,
        PerCaller,
        SecretHeader,
        TokenExchange,
    )
    from bridge.client.blocking import BlockingToolProvider, connect
    from bridge.client.config.loading import load_config, parse_config
    from bridge.client.config.schema import config_json_schema
    from bridge.client.config.servers import ServerConfig, ServersConfig
    from bridge.client.config.variables import InputDefinition, InputSource
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.running_call import CallOptions
    from bridge.client.connection.status import (
        ConnectionState,
        ConnectionStatus,
        ReconnectPolicy,
        ServerInfo,
        ToolListing,
    )
    from bridge.client.prompts import RemotePrompts
    from bridge.client.provider import McpToolProvider
    from bridge.client.remote_tool import RemoteExecutor
    from bridge.client.resources import RemoteResources
    from bridge.client.tasks.blocking import BlockingTask
    from bridge.client.tasks.detached import DetachedTools
    from bridge.client.tasks.remote_task import RemoteTask
    from bridge.client.tool_catalog import RemoteName, ServerStatus, ToolsChange
    from bridge.client.transports.http import HttpTransport
    from bridge.client.transports.memory import MemoryTransport
    from bridge.client.transports.stdio import StdioTransport
    from bridge.client.transports.transport import UnusableTransport

__all__ = [
    "AssertionExchange", "BlockingTask", "BlockingToolProvider", "CallOptions", "ClientCredentials",
    "ClientHandlers", "Connection", "ConnectionState", "ConnectionStatus", "DetachedTools", "HttpTransport",
    "IdentityAssertion", "InputDefinition", "InputSource", "McpToolProvider", "MemoryTransport", "OAuthLogin",
    "PerCaller", "ReconnectPolicy", "RemoteExecutor", "RemoteName", "RemotePrompts", "RemoteResources",
    "RemoteTask", "SecretHeader", "ServerConfig", "ServerInfo", "ServerStatus", "ServersConfig", "StdioTransport",
    "TokenExchange", "ToolListing", "ToolsChange", "UnusableTransport", "config_json_schema", "connect",
    "load_config", "parse_config",
]  # fmt: skip

_NAMES = {
    "bridge.client.auth.grants": (
        "AssertionExchange ClientCredentials IdentityAssertion OAuthLogin PerCaller SecretHeader TokenExchange"
    ),
    "bridge.client.blocking": "BlockingToolProvider connect",
    "bridge.client.config.loading": "load_config parse_config",
    "bridge.client.config.schema": "config_json_schema",
    "bridge.client.config.servers": "ServerConfig ServersConfig",
    "bridge.client.config.variables": "InputDefinition InputSource",
    "bridge.client.connection.running_call": "CallOptions",
    "bridge.client.connection.connection": "Connection",
    "bridge.client.connection.handlers": "ClientHandlers",
    "bridge.client.connection.status": "ConnectionState ConnectionStatus ReconnectPolicy ServerInfo ToolListing",
    "bridge.client.prompts": "RemotePrompts",
    "bridge.client.provider": "McpToolProvider",
    "bridge.client.remote_tool": "RemoteExecutor",
    "bridge.client.resources": "RemoteResources",
    "bridge.client.tasks.blocking": "BlockingTask",
    "bridge.client.tasks.detached": "DetachedTools",
    "bridge.client.tasks.remote_task": "RemoteTask",
    "bridge.client.tool_catalog": "RemoteName ServerStatus ToolsChange",
    "bridge.client.transports.http": "HttpTransport",
    "bridge.client.transports.memory": "MemoryTransport",
    "bridge.client.transports.stdio": "StdioTransport",
    "bridge.client.transports.transport": "UnusableTransport",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
