"""Extensions of a gateway: its own, and those of its servers' configurations, which it passes on."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bridge.client.connection.running_call import NO_OPTIONS
from bridge.errors import ServerError, ServerRefusedError, ToolError
from bridge.gateway.proxy import Proxy
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import METHOD_NOT_FOUND
from bridge.server.profiles import LOCAL
from bridge.wire.extension import Extension, extensions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bridge.client.connection.running_call import CallOptions
    from bridge.client.provider import McpToolProvider
    from bridge.client.upstream import Upstream
    from bridge.gateway.suspended_calls import SuspendedCalls
    from bridge.tools.context import InvocationContext
    from bridge.types import Json
    from bridge.wire.extension import Extensions

_logger = logging.getLogger("bridge.gateway")


class GatewayExtensions:
    """Local extensions, and those of the servers' configurations that connected servers announce.

    If several announce an extension, `Extension.merge` of the local one chooses the settings; without one, they are
    those of the first server, in the order of the configuration.

    Args:
        provider: The servers.
        local: Local extensions.
        has: Returns True for the name of a server whose extensions are announced, and `LOCAL`; by default for all.
    """

    def __init__(
        self, provider: McpToolProvider, local: Extensions, has: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._provider = provider
        self._local = local
        self._has = has

    def within(self, has: Callable[[str], bool]) -> GatewayExtensions:
        """Return the extensions of some of the servers."""
        return GatewayExtensions(self._provider, self._local, has)

    def __iter__(self) -> Iterator[Extension]:
        local = {each.id: each for each in extensions_of(self._local) if self._has(LOCAL)}
        announced: dict[str, list[tuple[str, Json]]] = {}
        for server in filter(lambda each: self._has(each.name), self._provider.upstreams.values()):
            for identifier, settings in announced_by(server).items():
                announced.setdefault(identifier, []).append((server.name, settings))
        for each in local.values():
            yield replace(each, settings=each.merge([each.settings, *(of for _, of in announced.get(each.id, ()))]))
        for identifier, found in announced.items():
            if identifier not in local:
                yield Extension(id=identifier, settings=found[0][1], server=found[0][0])


def announced_by(server: Upstream) -> Mapping[str, Json]:
    """Return the settings of the extensions that a server announces and its configuration names."""
    info = server.connection.server_info
    announced = {} if info is None else info.capabilities.get("extensions") or {}
    return {each: announced[each] for each in server.config.extensions if each in announced}


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """One request of an extension to a server."""

    server: Upstream
    method: str
    options: CallOptions = NO_OPTIONS
    """Options of the request."""

    @property
    def label(self) -> str:
        """The method and its server, for messages."""
        return f"the method {self.method!r} of the server {self.server.name!r}"

    async def call(
        self, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions = NO_OPTIONS
    ) -> Json:
        """Send the request with these parameters.

        Raises:
            ServerError: It failed.
        """
        return await self.server.request(self.method, arguments, context, options)


class ForwardedExtensions:
    """Passes requests of extensions on; a `bridge.server.forwarded.ForwardedRequests`.

    A request with the URI of a server's resource is sent to that server, with the URI there. Any other is sent to the
    first server that knows its method, of those whose configuration names an extension that they announce. Results pass
    unchanged.

    Args:
        provider: The servers.
        suspended_calls: Calls suspended until an answer arrives.
        has: Returns True for the name of a server to which requests are sent; by default for all.
    """

    def __init__(
        self,
        provider: McpToolProvider,
        suspended_calls: SuspendedCalls,
        has: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._has = has
        self._provider = provider
        self._suspended_calls = suspended_calls

    def takes(self, params: Json) -> bool:
        """Return True if a server may have the method of a request with these parameters."""
        return bool(self._servers(params))

    def _servers(self, params: Json) -> dict[Upstream, Json]:
        """Return the servers that may have a method, each with the parameters for it."""
        servers = [each for each in self._provider.upstreams.values() if self._has(each.name) and announced_by(each)]
        uris = self._provider.resources.uris
        remote = uris.remote(uri) if isinstance(uri := params.get("uri"), str) else None
        if remote is None:
            return dict.fromkeys(servers, params)
        return {each: {**params, "uri": remote.uri} for each in servers if each.name == remote.server}

    async def answer(self, method: str, params: Json, context: InvocationContext) -> Json:
        """Return the result of the first server that has the method; raises as `ForwardedRequests.answer`."""
        given = {key: params[key] for key in params if key not in {"_meta", "inputResponses", "requestState"}}
        for server, of_server in self._servers(given).items():
            proxy = _RequestProxy(RemoteRequest(server, method), server, self._suspended_calls)
            try:
                return await proxy.answer(of_server, context)
            except ServerRefusedError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise ProtocolError(error.code, server.config.transport.scrub(error.message), error.data) from error
            except ServerError as error:
                raise ToolError(error.brief) from error
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found", method)

    def notified(self, method: str, params: Json, context: InvocationContext) -> None:
        """Pass a notification of a client on to the servers that may have it."""
        for server, of_server in self._servers(params).items():
            if server.callers is not None and context.caller is not None:
                reason = "its callers have connections of their own, which notifications do not open"
                _logger.debug("server %r: dropped the notification %r: %s", server.name, method, reason)
                continue
            try:
                server.connection.notify(method, of_server)
            except ServerError as error:
                _logger.debug("server %r: dropped the notification %r: %s", server.name, method, error.brief)


class _RequestProxy(Proxy[RemoteRequest]):
    """Sends a request on behalf of a caller of the gateway."""

    __slots__ = ()

    async def answer(self, params: Json, context: InvocationContext) -> Json:
        """Return the result; raises as `Proxy` and `RemoteRequest.call`."""
        return dict(await self._call(params, context))
