"""Tools, resources and prompts that each caller of a gateway sees, if a server lists them for each caller."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeAlias
from weakref import WeakValueDictionary

import anyio

from bridge.client.connection.status import Listeners
from bridge.errors import ServerError, ToolError
from bridge.gateway.credentials.errors import CredentialNeededError, CredentialStoreError
from bridge.gateway.features import merged
from bridge.prompts.box import PromptBox
from bridge.resources.box import ResourceBox
from bridge.server.caller_features import CallerView
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from bridge.types import FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from bridge.client.callers import CallerListing
    from bridge.client.provider import McpToolProvider
    from bridge.client.upstream import Upstream
    from bridge.gateway.credentials.store import CredentialKey
    from bridge.prompts.prompt import Prompt
    from bridge.resources.box import Readable
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Feature

LIST_SECONDS = 60.0
"""Seconds after which a caller's lists are loaded again before they are listed; servers announce changes in between."""
MAX_LISTS = 10_000
"""Maximum number of callers whose lists are kept; those that were loaded first are dropped."""
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")
_Identity: TypeAlias = tuple[str, str, frozenset[str]] | None
_logger = logging.getLogger("bridge.gateway")


class Proxies(Protocol):
    """Makes what is listed usable for callers of a gateway: a `bridge.gateway.gateway.Gateway`."""

    def proxied_tool(self, tool: Tool) -> Tool:
        """Return a tool that is called with the caller's credential."""
        ...

    def proxied_resource(self, item: Resource | ResourceTemplate) -> Resource | ResourceTemplate:
        """Return a resource that is read with the caller's credential."""
        ...

    def proxied_prompt(self, prompt: Prompt) -> Prompt:
        """Return a prompt that is rendered with the caller's credential."""
        ...


@dataclass(slots=True)
class _Loaded:
    view: CallerView
    listings: tuple[CallerListing, ...]
    until: float


class CallerResources(ResourceBox):
    """The resources that some callers see, beside those that all see.

    Args:
        common: The resources that all see.
        own: Further resources.
    """

    def __init__(self, common: ResourceBox, own: Iterable[Resource | ResourceTemplate]) -> None:
        super().__init__()
        self._common = common
        self.replace(merged(self, common.feed, own))

    def find(self, uri: str) -> Readable | None:
        """Return what reads a URI; see `ResourceBox.find`."""
        return super().find(uri) or self._common.find(uri)

    async def begin_watch(self, uri: str, context: InvocationContext | None = None) -> Callable[[], None]:
        """Watch a resource; see `ResourceBox.begin_watch`."""
        return await self._common.begin_watch(uri, context)


class GatewayCallerFeatures:
    """The tools, resources and prompts that each caller sees; a `bridge.server.features.CallerFeatures`.

    Callers with the same lists share one view, so that a thousand callers with the same lists take the memory of one.

    Args:
        provider: The servers.
        common: The view of callers who see what all see.
        proxies: Makes what servers list usable.
    """

    def __init__(self, provider: McpToolProvider, common: CallerView, proxies: Proxies) -> None:
        self._provider = provider
        self._common = common
        self._proxies = proxies
        self._loaded: dict[_Identity, _Loaded] = {}
        self._views: WeakValueDictionary[Hashable, CallerView] = WeakValueDictionary()
        self._listeners: Listeners[[Feature, str | None, tuple[str, str]]] = Listeners()
        for box in (common.tools, common.resources, common.prompts):
            if box is not None:
                box.on_change(self._forget)

    @property
    def may_be_more(self) -> bool:
        """True if a server lists for each caller; see `CallerFeatures.may_be_more`."""
        return any(server.lists_per_caller for server in self._provider.upstreams.values())

    def of(self, caller: Caller | None, *, current: bool = False) -> CallerView | None:
        """Return what a caller sees; see `CallerFeatures.of`."""
        loaded = self._loaded.get(_identity(caller)) if self._loaded else None
        if loaded is not None:
            return None if current and monotonic() >= loaded.until else loaded.view
        for server in self._provider.upstreams.values():
            if server.lists_per_caller:
                return None
        return self._common

    async def load(self, context: InvocationContext) -> CallerView:
        """Load what a caller sees; see `CallerFeatures.load`."""
        servers = [server for server in self._provider.upstreams.values() if server.lists_per_caller]
        identity = _identity(context.caller)
        if not servers:
            return self._common
        listings: dict[str, CallerListing] = {}
        unconnected: list[Upstream] = []

        async def load(server: Upstream) -> None:
            try:
                listings[server.name] = await server.list_for(context, partial(self._drop, identity))
            except CredentialNeededError:
                unconnected.append(server)
            except (ServerError, CredentialStoreError) as error:
                _logger.info("the server %r cannot be listed for a caller: %s", server.name, error)

        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(load, server)
        digests = tuple((name, listing.digest) for name, listing in sorted(listings.items()))
        group = digests, tuple(sorted(server.name for server in unconnected)), tuple(server.name for server in servers)
        view = self._views.get(group)
        if view is None:
            view = self._views[group] = self._built(servers, listings, unconnected)
        seconds = LIST_SECONDS if len(listings) == len(servers) else 0.0
        if len(self._loaded) >= MAX_LISTS and identity not in self._loaded:
            del self._loaded[next(iter(self._loaded))]
        self._loaded[identity] = _Loaded(view, tuple(listings.values()), monotonic() + seconds)
        return view

    def on_change(self, listener: Callable[[Feature, str | None, tuple[str, str]], None]) -> Callable[[], None]:
        """Call a listener after a change that one caller is notified of; see `CallerFeatures.on_change`."""
        return self._listeners.add(listener)

    def changed(self, key: CredentialKey) -> None:
        """Forget the lists of a caller whose credentials have changed, and notify the caller."""
        for identity in [each for each in self._loaded if each is not None and each[:2] == (key.issuer, key.subject)]:
            for feature in FEATURES:
                self._drop(identity, feature)

    def updated(self, uri: str, caller: Caller) -> None:
        """Notify a caller of new content of a resource."""
        self._listeners.notify("resources", uri, caller.identity)

    def _built(
        self, servers: list[Upstream], listings: Mapping[str, CallerListing], unconnected: list[Upstream]
    ) -> CallerView:
        provider, proxies, common = self._provider, self._proxies, self._common
        assert common.resources is not None, "a gateway has them"
        assert common.prompts is not None, "a gateway has them"
        resources = [
            proxies.proxied_resource(provider.resources.named(item, name))
            for name, listing in listings.items()
            for item in listing.resources
        ]
        named = provider.prompts_with({name: listing.prompts for name, listing in listings.items()})
        prompts = PromptBox()
        prompts.replace(merged(prompts, common.prompts.feed, map(proxies.proxied_prompt, named)))
        return CallerView(
            self._tools(servers, listings, unconnected), CallerResources(common.resources, resources), prompts
        )

    def _tools(
        self, servers: list[Upstream], listings: Mapping[str, CallerListing], unconnected: list[Upstream]
    ) -> ToolBox:
        common = self._common.tools
        catalog = self._provider.catalog_with({name: listing.tools for name, listing in listings.items()})
        own = [tool for tool in catalog.tools if catalog.origins[tool.name].server in listings]
        box = ToolBox()
        tools = {tool.name: tool for tool in map(self._provider.resources.localized, own)}
        for server in servers:  # the call that connects a caller is repeated once the caller is connected
            tool = _connect_tool(server, listed=server in unconnected)
            tools.setdefault(tool.name, tool)
        others = (self._proxies.proxied_tool(tool) for tool in tools.values() if tool.name not in common)
        box.replace([*common, *others])
        return box

    def _drop(self, identity: _Identity, feature: Feature) -> None:
        self._loaded.pop(identity, None)
        if identity is not None:
            self._listeners.notify(feature, None, identity[:2])

    def _forget(self) -> None:
        self._loaded.clear()
        self._views = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class ConnectExecutor:
    """Executor of the tool by which a caller connects a server whose tools are not known before."""

    server: Upstream
    """The server."""

    @property
    def grant(self) -> str | None:
        """Way by which each caller has a credential of its own, for the audit log."""
        per_caller = self.server.config.per_caller
        return None if per_caller is None else per_caller.kind

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
    return None if caller is None else (*caller.identity, caller.scopes)
