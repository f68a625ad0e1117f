"""``resources/…`` (MCP 2025-11-25 and 2026-07-28, "Resources").

A resource that does not exist is the error -32002 in the handshake era and -32602 in the modern one; the data of both
has its URI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.protocol.messages import result_beginning
from bridge.server.auth.access import EVERYTHING
from bridge.server.contents_stream import ResponseContents
from bridge.server.methods.method import ERAS, Method, Target, Written, session_id
from bridge.server.methods.pages import PagedList
from bridge.server.methods.plain_calls import PlainCalls
from bridge.server.served.resources import CACHING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp_types import EmptyResult, ReadResourceRequestParams, SubscribeRequestParams, UnsubscribeRequestParams

    from bridge.server.auth.access import Access
    from bridge.server.contents_stream import ResponseBody
    from bridge.server.listing import Listing
    from bridge.server.methods.method import HandlerRequest, PlainRequest
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.types import Json

_CACHING = b"," + to_json(CACHING)[1:-1]


class ResourcesList(PagedList):
    """The list of resources."""

    name = "resources/list"

    def listing(self, access: Access = EVERYTHING) -> Listing[Any] | None:
        """Return the resources."""
        resources = self._core.resources
        return None if resources is None else resources.views.of(access).lists["resources"]


class ResourceTemplatesList(PagedList):
    """The list of resource templates."""

    name = "resources/templates/list"

    def listing(self, access: Access = EVERYTHING) -> Listing[Any] | None:
        """Return the templates."""
        resources = self._core.resources
        return None if resources is None else resources.views.of(access).lists["resourceTemplates"]


class ResourcesRead(PlainCalls):
    """The content of a resource; plain if the resource is known."""

    name = "resources/read"
    planned_in = ERAS
    noun = "resource"
    target_param = "uri"

    def plan(self, request: PlainRequest) -> PlainRequest | None:
        """Return the request if it reads a known resource."""
        params, access, core = request.params, request.access, self._core
        uri, resources = params.get("uri"), core.resources
        if resources is None or type(uri) is not str or len(params) != 1 + ("_meta" in params):
            return None
        found = resources.find(uri, access)
        if found is None or (access is not EVERYTHING and access.missing(found.resource.name)):
            return None
        resource = found.resource
        if resource.is_plain and core.is_plain:
            request.tool, request.takes_context = found.tool, resource.takes_context
        request.found, request.arguments, request.may_talk = found, found.arguments, resource.interactive
        if request.modern:
            request.ending = _CACHING + request.ending
        if resource.server is not None:
            request.stream = self._stream
        return request

    def _stream(self, request: PlainRequest, body: ResponseBody) -> None:
        """Let the contents of another server's resource be sent while they are received."""
        name, channel = request.found.resource.name, request.channel
        assert channel is not None, "the request has one"
        channel.contents_stream = ResponseContents(
            name, result_beginning(request.id), channel.close_unused, body, self._core.max_result_bytes(name)
        )

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.producing

    def _run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Read the resource."""
        assert self._core.resources is not None
        return self._core.resources.read(request.params["uri"], request.found, context, write, modern=request.modern)

    def _write(self, request: PlainRequest, result: ToolExecutionResult, write: Callable[[Json], Written]) -> Written:
        assert self._core.resources is not None
        return self._core.resources.write(request.found, result, write, modern=request.modern)

    def _reported(self, request: PlainRequest, error: BaseException) -> BaseException:
        assert self._core.resources is not None
        refusal = self._core.resources.refusal(request.params["uri"], error, modern=request.modern)
        return super()._reported(request, error) if refusal is None else refusal

    def params_type(self) -> type[ReadResourceRequestParams] | None:
        """Return the type of the parameters: a URI."""
        if self._core.resources is None:
            return None
        from mcp_types import ReadResourceRequestParams

        return ReadResourceRequestParams

    async def handle(self, request: HandlerRequest, params: ReadResourceRequestParams) -> Json:
        """Read the resource, which may ask its client through the context."""
        assert self._core.resources is not None
        with request.running() as context:
            uri, access = str(params.uri), request.access
            found = self._core.resources.required(uri, access, modern=request.modern)
            return await self._core.resources.read(uri, found, context, dict, modern=request.modern)

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
        """Return the resource."""
        requested = params.get("uri")
        if not isinstance(requested, str) or self._core.resources is None:
            return Target(None, None, None)
        found = self._core.resources.find(requested, access)
        return (
            Target(requested, None, None)
            if found is None
            else Target(requested, found.resource.name, found.resource.server)
        )


class ResourcesSubscribe(Method):
    """Notifications of a resource's new content, in a session of the handshake era."""

    name = "resources/subscribe"

    def params_type(self) -> type[SubscribeRequestParams] | None:
        """Return the type of the parameters: a URI."""
        if self._core.resources is None:
            return None
        from mcp_types import SubscribeRequestParams

        return SubscribeRequestParams

    async def handle(self, request: HandlerRequest, params: SubscribeRequestParams) -> EmptyResult:
        """Remember the resource for the session.

        Raises:
            ProtocolError: There is no such resource, or the session watches too many.
        """
        from mcp_types import EmptyResult

        assert self._core.resources is not None
        sdk = request.sdk
        await self._core.resources.watch(sdk.session.client_params, session_id(sdk), str(params.uri), request.access)
        return EmptyResult()


class ResourcesUnsubscribe(Method):
    """The end of a subscription."""

    name = "resources/unsubscribe"

    def params_type(self) -> type[UnsubscribeRequestParams] | None:
        """Return the type of the parameters: a URI."""
        if self._core.resources is None:
            return None
        from mcp_types import UnsubscribeRequestParams

        return UnsubscribeRequestParams

    async def handle(self, request: HandlerRequest, params: UnsubscribeRequestParams) -> EmptyResult:
        """Forget the resource for the session."""
        from mcp_types import EmptyResult

        assert self._core.resources is not None
        sdk = request.sdk
        await self._core.resources.unwatch(sdk.session.client_params, session_id(sdk), str(params.uri))
        return EmptyResult()
