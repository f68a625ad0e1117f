"""The gateway: remote servers' tools, and local ones beside them, served again as one server.

The names are loaded when they are first used (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.gateway.gateway import Gateway, merged_servers

__all__ = ["Gateway", "merged_servers"]

_HOMES = {"Gateway": "gateway", "merged_servers": "gateway"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
