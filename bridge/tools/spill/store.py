"""Stores of large results: the interface, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bridge.errors import BridgeError

DEFAULT_TTL_SECONDS = 3600.0
"""Default time for which a result is kept, in seconds."""
DEFAULT_MAX_BYTES = 256 * 1024 * 1024
"""Default maximum length of all kept results."""
DEFAULT_MAX_CALLER_BYTES = 64 * 1024 * 1024
"""Default maximum length of the kept results of one caller."""


class ResultStoreError(BridgeError):
    """A store of results cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResult:
    """A result as it is stored."""

    owner: str
    """Key of the caller who may read it."""
    session: str
    """Key of the session at whose end it is deleted; empty for none."""
    tool: str
    """Name of the tool."""
    content: str
    """Its content blocks, as MCP's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a store. Over a maximum, the oldest results are deleted."""

    ttl_seconds: float = DEFAULT_TTL_SECONDS
    max_bytes: int = DEFAULT_MAX_BYTES
    max_caller_bytes: int = DEFAULT_MAX_CALLER_BYTES

    def admits(self, length: int) -> bool:
        """Return True if one result of a length can be kept."""
        return length <= min(self.max_bytes, self.max_caller_bytes)


class ResultStore(Protocol):
    """Keeps results by their ids."""

    is_shared: bool
    """True if replicas of a server use it, of which one continues the sessions of another."""

    async def add(self, result_id: str, kept: KeptResult, bounds: Bounds) -> None:
        """Keep a result, and delete expired ones and those over the bounds.

        Raises:
            ResultStoreError: It cannot be stored.
        """
        ...

    async def find(self, result_id: str) -> KeptResult | None:
        """Return a result; None if there is none, or it has expired.

        Raises:
            ResultStoreError: The store cannot be read.
        """
        ...

    async def forget(self, *, owner: str | None = None, session: str | None = None) -> None:
        """Delete the results of a caller, or those of a session.

        Raises:
            ResultStoreError: They cannot be deleted.
        """
        ...

    async def aclose(self) -> None:
        """Close the store."""
        ...
