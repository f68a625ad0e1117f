"""Warnings for names and patterns that match no tool.

What limits say of tools that are not there: as a rule a name that is misspelt.

What keys and scopes say of tools that are not there: as a rule a name that is misspelt.
"""

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

if TYPE_CHECKING:
    Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

_limits_logger = logging.getLogger("bridge.server.limits")

_auth_logger = logging.getLogger("bridge.server.auth")


class UnmatchedLimitNames:
    """Warns of names and patterns that no tool matches, each when it is found so.

    Args:
        limits: What names tools.
        publisher: What has the tools. While there are none, they are still to come.
    """

    def __init__(self, limits: Limits, publisher: ServerCore) -> None:
        self._patterns = frozenset((*limits.tool_rates, *limits.tool_concurrency, *limits.tool_result_bytes))
        self._publisher = publisher
        self._told: frozenset[str] = frozenset()

    def look(self) -> None:
        """Warn of what has no tool now and had one, or was not there, when looked at before."""
        names = [tool.name for tool in self._publisher.tools]
        if not names:
            return
        found = unmatched(self._patterns, names)
        for pattern in sorted(found - self._told):
            _limits_logger.warning(
                "no tool matches %r, whose calls are to be limited: one of another name is not", pattern
            )
        self._told = found


def with_unmatched_warnings(publisher: ServerCore, lifespan: Lifespan | None) -> Lifespan | None:
    """What brings the tools, with a look at what limits say of them: now where they are there, else once they came.

    Args:
        publisher: What has the tools, and the limits.
        lifespan: What brings them; None where they are there.
    """
    if publisher.limits is None:
        return lifespan
    patterns = UnmatchedLimitNames(publisher.limits, publisher)
    if lifespan is None:
        patterns.look()
        return None

    @asynccontextmanager
    async def looking() -> AsyncIterator[None]:
        async with lifespan():
            patterns.look()
            end = publisher.changes.listen(patterns.look)
            try:
                yield
            finally:
                end()

    return looking


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Those names and patterns that match none of the names that there are."""
    there = tuple(names)
    return frozenset(each for each in patterns if not any(matches((each,), name) for name in there))


class UnmatchedAuthNames:
    """Warns of names and patterns that no tool matches, each when it is found so.

    Args:
        auth: What names tools.
        tools: The tools. While there are none, they are still to come.
    """

    def __init__(self, auth: Auth, tools: ToolBox) -> None:
        self._auth = auth
        self._tools = tools
        self._scopes: frozenset[str] = frozenset()
        self._keys: frozenset[str] = frozenset()
        self._is_held = False

    def hold(self) -> None:
        """Say nothing until `release`: further tools are about to come."""
        self._is_held = True

    def release(self) -> None:
        """Warn from now on, and now."""
        self._is_held = False
        self.look()

    def look(self) -> None:
        """Warn of what has no tool now and had one, or was not there, when looked at before."""
        names = [tool.name for tool in self._tools]
        if self._is_held or not names:
            return
        scopes, keys = unmatched(self._auth.tool_scopes.patterns, names), unmatched(self._auth.key_tools, names)
        for pattern in sorted(scopes - self._scopes):
            _auth_logger.warning(
                "no tool matches %r, which is to need a scope: a tool of another name needs none", pattern
            )
        for pattern in sorted(keys - self._keys):
            _auth_logger.warning("no tool matches %r, which a key is for: it opens no tool of another name", pattern)
        self._scopes, self._keys = scopes, keys
