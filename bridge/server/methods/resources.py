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
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.method import HANDSHAKE, Method, Target, Written, required_text
from bridge.server.methods.pages import PagedList
from bridge.server.served.resources import CACHING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.listing import Listing
    from bridge.server.served.resources import ServedResources
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


class ResourcesRead(FunctionMethod):
    """The content of a resource."""

    name = "resources/read"
    noun = "resource"
    target_param = "uri"

    @property
    def is_served(self) -> bool:
        """True if the server has resources."""
        return self._core.resources is not None

    @property
    def _resources(self) -> ServedResources:
        assert self._core.resources is not None, "it is served"
        return self._core.resources

    def plan(self, exchange: ServedExchange) -> None:
        """Read the URI, and find the resource."""
        uri, core = required_text(exchange.params, "uri"), self._core
        found = self._resources.required(uri, exchange.access, modern=exchange.modern)
        resource = found.resource
        exchange.found, exchange.arguments = found, found.arguments
        if resource.is_plain and core.is_plain:
            exchange.tool, exchange.takes_context = found.tool, resource.takes_context
        if exchange.modern:
            exchange.ending = _CACHING + exchange.ending
        if resource.server is not None:
            exchange.contents = self._contents

    def _contents(self, exchange: ServedExchange) -> ResponseContents:
        """Return the stream of another server's resource, which is sent while it is received."""
        name = exchange.found.resource.name
        return ResponseContents(name, result_beginning(exchange.id), self._core.max_result_bytes(name))

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.producing

    def _run(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Read the resource."""
        return self._resources.read(exchange.params["uri"], exchange.found, context, write, modern=exchange.modern)

    def _write(
        self, exchange: ServedExchange, result: ToolExecutionResult, write: Callable[[Json], Written]
    ) -> Written:
        return self._resources.write(exchange.found, result, write, modern=exchange.modern)

    def _reported(self, exchange: ServedExchange, error: BaseException) -> BaseException:
        refusal = self._resources.refusal(exchange.params["uri"], error, modern=exchange.modern)
        return super()._reported(exchange, error) if refusal is None else refusal

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
        """Return the resource."""
        requested, resources = self.target_in(params), self._core.resources
        found = None if resources is None or requested is None else resources.find(requested, access)
        if found is None:
            return Target(requested, None, None)
        return Target(requested, found.resource.name, found.resource.server)


class _Watching(Method):
    """Base of the methods that begin and end notifications of a resource's new content."""

    eras = HANDSHAKE
    needs_session = True

    @property
    def is_served(self) -> bool:
        """True if the server has resources."""
        return self._core.resources is not None

    def plan(self, exchange: ServedExchange) -> None:
        """Read the URI."""
        required_text(exchange.params, "uri")

    async def run(
        self,
        exchange: ServedExchange,
        context: InvocationContext,  # noqa: ARG002 - the base's
        write: Callable[[Json], Written],
    ) -> Written:
        """Begin or end the notifications, and tell it to the replicas of the session."""
        resources, session, share = self._core.resources, exchange.session, self._core.on_session_change
        assert resources is not None, "it is served"
        assert session is not None, "it needs one"
        uri = exchange.params["uri"]
        change = await self._change(resources, exchange, uri)
        if share is not None:
            await share(session, {"kind": "watched", "added": [], "removed": [], change: [uri]})
        return write({})

    async def _change(self, resources: ServedResources, exchange: ServedExchange, uri: str) -> str:
        """Begin or end the notifications; return the member of the change that has the URI."""
        raise NotImplementedError


class ResourcesSubscribe(_Watching):
    """Notifications of a resource's new content, in a session of the handshake era."""

    name = "resources/subscribe"

    async def _change(self, resources: ServedResources, exchange: ServedExchange, uri: str) -> str:
        """Remember the resource for the session.

        Raises:
            ProtocolError: There is no such resource, or the session watches too many.
        """
        assert exchange.session is not None
        await resources.watch(exchange.session, uri, exchange.access)
        return "added"


class ResourcesUnsubscribe(_Watching):
    """The end of a subscription."""

    name = "resources/unsubscribe"

    async def _change(self, resources: ServedResources, exchange: ServedExchange, uri: str) -> str:  # noqa: ARG002 - the base's
        """Forget the resource for the session."""
        assert exchange.session is not None
        exchange.session.watched.pop(uri, _nothing)()
        return "removed"


def _nothing() -> None:
    """End nothing."""
