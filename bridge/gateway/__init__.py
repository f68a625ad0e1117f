"""Gateway: publishes the tools of remote servers, and local ones, as one server.

Names are imported on first use (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.gateway.gateway import Gateway, merged_servers
    from bridge.gateway.in_process import from_mcp

__all__ = ["Gateway", "from_mcp", "merged_servers"]
_MODULES = {"Gateway": "gateway", "from_mcp": "in_process", "merged_servers": "gateway"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
