"""What limits say of tools that are not there: as a rule a name that is misspelt."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bridge.server.auth.access import unmatched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from bridge.server.core import ServerCore
    from bridge.server.limits.limits import Limits

    Lifespan = Callable[[], AbstractAsyncContextManager[Any]]

_logger = logging.getLogger("bridge.server.limits")


class UnmatchedLimits:
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
            _logger.warning("no tool matches %r, whose calls are to be limited: one of another name is not", pattern)
        self._told = found


def looked_after(publisher: ServerCore, lifespan: Lifespan | None) -> Lifespan | None:
    """What brings the tools, with a look at what limits say of them: now where they are there, else once they came.

    Args:
        publisher: What has the tools, and the limits.
        lifespan: What brings them; None where they are there.
    """
    if publisher.limits is None:
        return lifespan
    patterns = UnmatchedLimits(publisher.limits, publisher)
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
