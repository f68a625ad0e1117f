"""Warnings about names and patterns in the configuration that match no tool, usually because of a misspelling."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bridge.server.auth.access import matches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from bridge.server.auth.auth import Auth
    from bridge.server.core import ServerCore
    from bridge.server.limits.limits import Limits
    from bridge.tools.toolbox import ToolBox

    Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


_limits_logger = logging.getLogger("bridge.server.limits")
_auth_logger = logging.getLogger("bridge.server.auth")


class UnmatchedLimitNames:
    """Warns of names and patterns in limits that match no tool.

    Args:
        limits: The limits.
        publisher: The tools. While there are none, they are still being loaded.
    """

    def __init__(self, limits: Limits, publisher: ServerCore) -> None:
        self._patterns = frozenset((*limits.tool_rates, *limits.tool_concurrency, *limits.tool_result_bytes))
        self._publisher = publisher
        self._reported: frozenset[str] = frozenset()

    def check(self) -> None:
        """Warn of names that match no tool, unless they matched none at the last check."""
        names = [tool.name for tool in self._publisher.tools]
        if not names:
            return
        found = unmatched(self._patterns, names)
        for pattern in sorted(found - self._reported):
            _limits_logger.warning("no tool matches %r in the limits: tools of other names are not limited", pattern)
        self._reported = found


def with_unmatched_warnings(publisher: ServerCore, lifespan: Lifespan | None) -> Lifespan | None:
    """Wrap a lifespan so that names in limits are checked once the tools are loaded, and on changes.

    Args:
        publisher: The tools and the limits.
        lifespan: The lifespan that loads the tools; None if they are loaded, which are then checked at once.
    """
    if publisher.limits is None:
        return lifespan
    patterns = UnmatchedLimitNames(publisher.limits, publisher)
    if lifespan is None:
        patterns.check()
        return None

    @asynccontextmanager
    async def checked() -> AsyncIterator[None]:
        async with lifespan():
            patterns.check()
            end = publisher.changes.listen(patterns.check)
            try:
                yield
            finally:
                end()

    return checked


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return the patterns that match none of the names."""
    known = tuple(names)
    return frozenset(each for each in patterns if not any(matches((each,), name) for name in known))


class UnmatchedAuthNames:
    """Warns of names and patterns in keys and scopes that match no tool.

    Args:
        auth: The keys and scopes.
        tools: The tools. While there are none, they are still being loaded.
    """

    def __init__(self, auth: Auth, tools: ToolBox) -> None:
        self._auth = auth
        self._tools = tools
        self._scopes: frozenset[str] = frozenset()
        self._keys: frozenset[str] = frozenset()
        self._is_held = False

    def hold(self) -> None:
        """Suppress warnings until `release`, while tools are being loaded."""
        self._is_held = True

    def release(self) -> None:
        """Check names now, and enable warnings."""
        self._is_held = False
        self.check()

    def check(self) -> None:
        """Warn of names that match no tool, unless they matched none at the last check."""
        names = [tool.name for tool in self._tools]
        if self._is_held or not names:
            return
        scopes, keys = unmatched(self._auth.tool_scopes.patterns, names), unmatched(self._auth.key_tools, names)
        for pattern in sorted(scopes - self._scopes):
            _auth_logger.warning("no tool matches %r in the scopes: tools of other names need no scope", pattern)
        for pattern in sorted(keys - self._keys):
            _auth_logger.warning("no tool matches %r in a key: the key does not allow tools of other names", pattern)
        self._scopes, self._keys = scopes, keys
