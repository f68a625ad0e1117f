"""Tools that each caller of a gateway sees, if a server lists its tools for each caller."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

import anyio

from bridge.errors import ServerError, ToolError
from bridge.gateway.credentials.errors import CredentialNeededError
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from bridge.client.callers import CallerListing
    from bridge.client.provider import McpToolProvider
    from bridge.client.upstream import Upstream
    from bridge.gateway.credentials.store import CredentialKey
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest

LIST_SECONDS = 60.0
"""Seconds after which a caller's list is loaded again before it is listed; servers announce changes in between."""
MAX_LISTS = 10_000
"""Maximum number of callers whose lists are kept; those that were loaded first are dropped."""
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")
_Identity: TypeAlias = tuple[str, str, frozenset[str]] | None
_logger = logging.getLogger("bridge.gateway")


@dataclass(slots=True)
class _Loaded:
    box: ToolBox
    listings: tuple[CallerListing, ...]
    until: float


class GatewayCallerTools:
    """The tools that each caller sees; a `bridge.server.features.CallerTools`.

    Callers with the same lists share one box, so that a thousand callers with the same tools take the memory of one.

    Args:
        provider: The servers.
        common: The tools that all see.
        proxied: Makes a tool of a server callable for callers of the gateway.
    """

    def __init__(self, provider: McpToolProvider, common: ToolBox, proxied: Callable[[Tool], Tool]) -> None:
        self._provider = provider
        self._common = common
        self._proxied = proxied
        self._is_touching = False
        self._loaded: dict[_Identity, _Loaded] = {}
        self._boxes: WeakValueDictionary[Hashable, ToolBox] = WeakValueDictionary()
        common.on_change(self._forget)

    def of(self, caller: Caller | None, *, current: bool = False) -> ToolBox | None:
        """Return the tools of a caller; see `CallerTools.of`."""
        loaded = self._loaded.get(_identity(caller))
        if loaded is not None:
            return None if current and monotonic() >= loaded.until else loaded.box
        return None if self._servers() else self._common

    async def load(self, context: InvocationContext) -> ToolBox:
        """Load the tools of a caller; see `CallerTools.load`."""
        servers, identity = self._servers(), _identity(context.caller)
        if not servers:
            return self._common
        listings: dict[str, CallerListing] = {}
        unconnected: list[Upstream] = []

        async def load(server: Upstream) -> None:
            try:
                listings[server.name] = await server.list_for(context, partial(self._drop, identity))
            except CredentialNeededError:
                unconnected.append(server)
            except ServerError as error:
                _logger.debug("the tools of the server %r cannot be listed for a caller: %s", server.name, error)

        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(load, server)
        digests = tuple((name, listing.digest) for name, listing in sorted(listings.items()))
        group = digests, tuple(sorted(server.name for server in unconnected)), tuple(server.name for server in servers)
        box = self._boxes.get(group)
        if box is None:
            box = self._boxes[group] = self._built(servers, listings, unconnected)
        seconds = LIST_SECONDS if len(listings) == len(servers) else 0.0
        if len(self._loaded) >= MAX_LISTS and identity not in self._loaded:
            del self._loaded[next(iter(self._loaded))]
        self._loaded[identity] = _Loaded(box, tuple(listings.values()), monotonic() + seconds)
        return box

    def _servers(self) -> list[Upstream]:
        return [server for server in self._provider.upstreams.values() if server.lists_per_caller]

    def _built(
        self, servers: list[Upstream], listings: Mapping[str, CallerListing], unconnected: list[Upstream]
    ) -> ToolBox:
        catalog = self._provider.catalog_with({name: listing.tools for name, listing in listings.items()})
        own = [tool for tool in catalog.tools if catalog.origins[tool.name].server in listings]
        box = ToolBox()
        tools = {tool.name: tool for tool in map(self._provider.resources.localized, own)}
        for server in servers:  # the call that connects a caller is repeated once the caller is connected
            tool = _connect_tool(server, listed=server in unconnected)
            tools.setdefault(tool.name, tool)
        box.replace([*self._common, *(self._proxied(tool) for tool in tools.values() if tool.name not in self._common)])
        return box

    def changed(self, key: CredentialKey) -> None:
        """Forget the tools of a caller whose credentials have changed, and announce that."""
        for identity in [each for each in self._loaded if each is not None and each[:2] == (key.issuer, key.subject)]:
            self._drop(identity)

    def _drop(self, identity: _Identity) -> None:
        if self._loaded.pop(identity, None) is not None:
            self._is_touching = True
            self._common.touch()
            self._is_touching = False

    def _forget(self) -> None:
        if not self._is_touching:
            self._loaded.clear()
            self._boxes = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class ConnectExecutor:
    """Executor of the tool by which a caller connects a server whose tools are not known before."""

    server: Upstream
    """The server."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:  # noqa: ARG002
        """Connect the caller.

        Raises:
            CredentialNeededError: The caller has to give a credential.
            ToolError: The server is unavailable.
        """
        assert self.server.callers is not None
        try:
            async with self.server.callers.connection(context.caller, context.headers):
                pass
        except CredentialNeededError:
            raise  # the caller is asked for it
        except ServerError as error:
            raise ToolError(error.brief) from error
        return ToolExecutionResult.of_text(f"{self.server.name!r} is connected; list the tools again")


def _connect_tool(server: Upstream, *, listed: bool) -> Tool:
    specification = ToolSpecification(
        name=f"{_FORBIDDEN.sub('_', server.name)}_connect",
        description=f"Connect {server.name!r} with your own account, after which its tools are listed.",
    )
    executor = ConnectExecutor(server)
    return Tool(specification, executor, source=f"server {server.name!r}", server=server.name, listed=listed)


def _identity(caller: Caller | None) -> _Identity:
    return None if caller is None else (caller.issuer, caller.subject or caller.name, caller.scopes)
