"""Remote MCP servers: what a configuration says of them, and their tools as local ones.

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

__all__ = [
    "HttpTransport",
    "InputDefinition",
    "InputSource",
    "ServerConfig",
    "ServersConfig",
    "StdioTransport",
    "config_json_schema",
    "load_config",
    "parse_config",
]

_MODULES = dict.fromkeys(__all__, "bridge.client.config")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
