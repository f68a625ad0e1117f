"""Resources and prompts of a gateway: local ones, and those of its servers; and which servers are missing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from bridge.errors import ServerError, ToolError
from bridge.resources.box import Readable, ResourceBox
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.client.resources import RemoteResources
    from bridge.client.tool_catalog import ServerStatus
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.box import Box
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext

_logger = logging.getLogger("bridge.gateway")
_MAX_WARNING_CHARS = 1000


class GatewayResources(ResourceBox):
    """Local resources, then those of the servers.

    Args:
        remote: Resources of the servers.
        local: Local resources; None for none.
        proxied: Makes a resource readable for callers of the gateway.
        updated_for: Called with the URI of a resource, and the only caller who is notified of its new content.
    """

    def __init__(
        self,
        remote: RemoteResources,
        local: ResourceBox | None,
        proxied: Callable[[Any], Resource | ResourceTemplate],
        updated_for: Callable[[str, Caller], None],
    ) -> None:
        super().__init__()
        self._updated_for = updated_for
        self._remote = remote
        self._local = ResourceBox() if local is None else local
        self._proxied = proxied
        for box in (self._local, remote):
            box.on_change(self._rebuild)
            box.on_update(self.updated)
        self._rebuild()

    def find(self, uri: str) -> Readable | None:
        """Return what reads a URI, also one that is not listed but is a server's; None if there is none."""
        found = super().find(uri) or self._local.find(uri)
        if found is not None or (remote := self._remote.find(uri)) is None:
            return found
        resource: Any = self._proxied(remote.resource)
        return Readable(resource, resource.tool, {})

    async def begin_watch(self, uri: str, context: InvocationContext | None = None) -> Callable[[], None]:
        """Subscribe to a resource of a server; see `ResourceBox.begin_watch`.

        All who watch it share one subscription, unless each caller has a connection of its own.
        """
        found = self.find(uri)
        if found is None or found.resource.server is None:
            return await self._local.begin_watch(uri, context)
        try:
            if self._remote.is_per_caller(found.resource.server):
                if context is None:
                    raise ToolError("the caller has to subscribe again: the subscription was another replica's")
                end = await self._remote.watch_for(uri, context, self._notified(context.caller))
                if end is not None:
                    return end
            return await self._remote.watch(uri, _ignore)  # the box itself is notified
        except ServerError as error:
            raise ToolError(error.brief) from error

    def _notified(self, caller: Caller | None) -> Callable[[str], None]:
        """Return a function that notifies a caller alone of new content."""

        def notify(uri: str) -> None:
            self.updates += 1
            if caller is not None:
                self._updated_for(uri, caller)

        return notify

    def _rebuild(self) -> None:
        proxied = (self._proxied(item) for item in self._remote if not self._is_local(item))
        self.replace(merged(self, self._local.feed, proxied))

    def _is_local(self, item: Resource | ResourceTemplate) -> bool:
        """True for a resource of a server whose URI a local template reads, which is logged."""
        uri = getattr(item, "uri", None)
        found = None if uri is None or uri in self._local else self._local.find(uri)
        if found is not None:
            _logger.warning("left out %r of the %s: the local %r reads it", uri, item.source, found.resource.name)
        return found is not None


def missing_notice(servers: Iterable[str]) -> str | None:
    """Return what clients are told of servers that are not listed yet; None for none."""
    missing = ", ".join(map(repr, servers))
    return f"Tools of these servers are missing until they are available: {missing}." if missing else None


def require_listed(servers: Iterable[ServerStatus]) -> None:
    """Check the required servers.

    Raises:
        ServerError: One of them is not listed.
    """
    for each in servers:
        if each.required and not each.is_listed and each.problem is not None:
            raise each.problem


def warn_of_missing(servers: Iterable[ServerStatus]) -> None:
    """Log one warning of the servers that are not listed."""
    servers = tuple(servers)
    missing = [each for each in servers if not each.is_listed]
    reasons = ["it is still starting" if each.problem is None else each.problem.failure.reason for each in missing]
    if len(missing) == 1:
        _logger.warning("continuing without the server %r until it is available: %s", missing[0].name, reasons[0])
    elif missing:
        named = "; ".join(f"{each.name!r}: {reason}" for each, reason in zip(missing, reasons, strict=True))
        message = "continuing without %d of %d servers until they are available: %s"
        _logger.warning(message, len(missing), len(servers), clip(named, _MAX_WARNING_CHARS))


def merged(box: Box[Any], local: Iterable[Any], remote: Iterable[Any]) -> list[Any]:
    """Return the local items, then the remote ones whose keys are free."""
    items = list(local)
    taken = {box.key_of(item) for item in items}
    for item in remote:
        if (key := box.key_of(item)) in taken:
            _logger.warning("left out %r of the %s: a local one has the same key", key, item.source)
        else:
            items.append(item)
    return items


def _ignore(_uri: str) -> None:
    """Do nothing."""
