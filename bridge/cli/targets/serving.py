"""Features that are served, with their lifespan and their reload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from bridge.client.config.servers import ToolListing
    from bridge.server.features import Features
    from bridge.server.profiles import Profile
    from bridge.server.server import Server


@dataclass(frozen=True, slots=True)
class Serving:
    """Features to serve, with their lifespan."""

    features: Features
    """The tools, resources and prompts."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    """Context during which they are served; None for none."""
    last_act: Callable[[], None] = lambda: None
    """Called, from any thread, if the process ends before the lifespan is closed."""
    servers: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """Status of each upstream server, as in ``bridge status --json``."""
    version: str = ""
    """Version of the served module; empty if unknown."""
    server: Server | None = None
    """The server of the module, whose options are used; None if it has none."""
    tool_listing: ToolListing | None = None
    """Tools that clients list, as a configuration says; None if none does."""
    restart: Callable[[str], Awaitable[bool]] | None = None
    """Restarts an upstream server, by name; returns False if there is none of this name. None without a gateway."""
    reload: Callable[[], Awaitable[None]] | None = None
    """Reloads the configuration as a whole, or raises a `BridgeError`; None if there is none."""
    problems: tuple[str, ...] = ()
    """Servers that the configuration makes unusable, each with the reason."""
    profiles: tuple[Profile, ...] = ()
    """Profiles that are served in place of the features themselves."""
