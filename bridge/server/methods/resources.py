"""``resources/…`` (MCP 2025-11-25 and 2026-07-28, "Resources").

A resource that does not exist is the error -32002 in the handshake era and -32602 in the modern one; the data of both
has its URI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.protocol.messages import result_beginning
from bridge.server.channel import context_of
from bridge.server.lists.resources import CACHING, no_resource
from bridge.server.methods.features import FeatureMethod
from bridge.server.methods.method import HANDSHAKE, Method, required_text
from bridge.server.methods.pages import PagedList
from bridge.server.results.contents_stream import ResponseContents
from bridge.text import clip
from bridge.tools.middleware import ReadResourceRequest
from bridge.wire.resources import contents_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.protocol.messages import ProtocolError
    from bridge.resources.box import Readable
    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.lists.listing import Listing
    from bridge.server.lists.lists import Lists
    from bridge.server.lists.resources import ServedResources
    from bridge.tools.calls import ToolExecutionResult
    from bridge.types import Json

_CACHING = b"," + to_json(CACHING)[1:-1]


class ResourcesList(PagedList):
    """The list of resources."""

    name = "resources/list"
    hook = "list_resources"

    def listing(self, lists: Lists, access: Access) -> Listing[Any] | None:
        """Return the resources."""
        return None if lists.resources is None else lists.resources.views.of(access).lists["resources"]


class ResourceTemplatesList(PagedList):
    """The list of resource templates."""

    name = "resources/templates/list"
    hook = "list_resource_templates"

    def listing(self, lists: Lists, access: Access) -> Listing[Any] | None:
        """Return the templates."""
        return None if lists.resources is None else lists.resources.views.of(access).lists["resourceTemplates"]


class ResourcesRead(FeatureMethod):
    """The content of a resource."""

    name = "resources/read"
    hook = "read_resource"
    noun = "resource"
    feature = "resources"
    caching = CACHING
    target_param = "uri"

    def plan(self, exchange: ServedExchange) -> None:
        """Read the URI, and find the resource."""
        required_text(exchange.params, "uri")
        if exchange.modern:
            exchange.ending = _CACHING + exchange.ending
        self._find_now(exchange)

    def _find(self, served: ServedResources, exchange: ServedExchange) -> None:
        uri = exchange.params["uri"]
        found = exchange.found = served.required(uri, exchange.access, modern=exchange.modern, meta=exchange.meta)
        resource, exchange.arguments = found.resource, found.arguments
        if resource.runs_directly and self._runs_directly:
            exchange.tool, exchange.takes_context = found.tool, resource.takes_context
        if resource.server is not None and getattr(resource.reader, "streams_contents", True):
            exchange.contents = self._contents

    def _request(self, served: ServedResources, exchange: ServedExchange) -> ReadResourceRequest:
        return ReadResourceRequest(exchange.params["uri"], revision=(served.box.version, served.box.updates))

    def _arguments(self, found: Readable, request: ReadResourceRequest) -> Mapping[str, Any]:  # noqa: ARG002 - the base's
        return found.arguments

    def _to_wire(self, found: Readable | None, result: ToolExecutionResult) -> Json:  # noqa: ARG002 - the base's
        return contents_to_wire(result)

    def _described(self, key: str) -> str:
        return f"the URI {clip(key)!r}"

    def _absent(self, key: str, *, modern: bool) -> ProtocolError:
        return no_resource(key, modern=modern)

    def _contents(self, exchange: ServedExchange) -> ResponseContents:
        """Return the stream of another server's resource, which is sent while it is received."""
        name = exchange.found.resource.name
        return ResponseContents(
            name, result_beginning(exchange.id), self._core.max_result_bytes(name), self._core.counted
        )


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

    async def run(self, exchange: ServedExchange) -> bytes:
        """Begin or end the notifications, and tell it to the replicas of the session."""
        session, share, uri = exchange.session, self._core.on_session_change, exchange.params["uri"]
        resources = (await self._core.lists_of(context_of(exchange))).resources
        assert resources is not None, "it is served"
        assert session is not None, "it needs one"
        change = await self._change(resources, exchange, uri)
        if share is not None:
            await share(session, {"kind": "watched", "added": [], "removed": [], change: [uri]})
        return exchange.write({})

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
        await resources.watch(exchange.session, uri, exchange.access, context_of(exchange))
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
