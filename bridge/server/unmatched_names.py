"""Warnings about names and patterns in the configuration that match no tool, usually because of a misspelling."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bridge.server.auth.access import matches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
    from contextlib import AbstractAsyncContextManager

    from bridge.server.auth.auth import Auth
    from bridge.server.changes import Changes
    from bridge.server.core import ServerCore

    Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


_limits_logger = logging.getLogger("bridge.server.limits")
_auth_logger = logging.getLogger("bridge.server.auth")


class UnmatchedNames:
    """Warns of configured names and patterns that match no tool, resource or prompt, once until they match again.

    Args:
        servers: The servers whose names count: one, or those of profiles, which have names of their own.
        sources: Functions that return names and patterns, each with a logger, and the end of its warning.
    """

    def __init__(
        self, servers: Iterable[ServerCore], *sources: tuple[Callable[[], Iterable[str]], logging.Logger, str]
    ) -> None:
        self._servers = tuple(servers)
        self._sources = sources
        self._reported: list[frozenset[str]] = [frozenset()] * len(sources)

    def check(self) -> None:
        """Warn of names that match nothing, unless more tools are about to be listed."""
        names = {name for server in self._servers for name in server.features.names}
        if not names or any(server.is_starting for server in self._servers):
            return
        for number, (patterns, logger, warning) in enumerate(self._sources):
            found = frozenset(each for each in patterns() if not any(matches((each,), name) for name in names))
            for pattern in sorted(found - self._reported[number]):
                logger.warning("no tool, resource or prompt matches %r %s", pattern, warning)
            self._reported[number] = found

    @contextmanager
    def watching(self, changes: Changes) -> Iterator[None]:
        """Context in which names are checked now, at the end of a start, and on changes of the tools."""
        self.check()
        for server in self._servers:
            if server.features.start is not None:
                server.features.start.on_end(self.check)
        end = changes.listen(lambda _: self.check())
        try:
            yield
        finally:
            end()


def unmatched_auth_names(auth: Auth, *servers: ServerCore) -> UnmatchedNames:
    """Create the warnings about names in scopes and keys."""
    return UnmatchedNames(
        servers,
        (lambda: auth.tool_scopes.patterns, _auth_logger, "in the scopes: other names need no scope"),
        (lambda: auth.key_tools, _auth_logger, "in a key: the key does not allow other names"),
    )


def warn_of_profiles(auth: Auth, profiles: Collection[str]) -> None:
    """Warn of names and patterns in keys that match no profile, once, now and after changes of the keys."""
    reported: set[str] = set()

    def check() -> None:
        unmatched = {each for each in auth.key_profiles if not any(matches((each,), name) for name in profiles)}
        for each in sorted(unmatched - reported):
            _auth_logger.warning("no profile matches %r in a key: there is %s", each, ", ".join(map(repr, profiles)))
        reported.update(unmatched)

    check()
    auth.on_change(check)


def with_unmatched_warnings(
    server: ServerCore, lifespan: Lifespan | None, profiles: Iterable[ServerCore] = ()
) -> Lifespan | None:
    """Wrap a lifespan so that names in limits are checked once the tools are loaded, and on changes.

    Args:
        server: The tools and the limits.
        lifespan: The lifespan that loads the tools; None if they are loaded, which are then checked at once.
        profiles: The servers of its profiles, whose names count in place of its own.
    """
    if (limits := server.limits) is None:
        return lifespan
    patterns = (*limits.tool_rates, *limits.tool_concurrency, *limits.tool_result_bytes)
    warning = "in the limits: other names are not limited"
    unmatched = UnmatchedNames(tuple(profiles) or (server,), (lambda: patterns, _limits_logger, warning))
    if lifespan is None:
        unmatched.check()
        return None

    @asynccontextmanager
    async def checked() -> AsyncIterator[None]:
        async with lifespan():
            with unmatched.watching(server.changes):
                yield

    return checked
