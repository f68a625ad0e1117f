"""The resources of one server: found by access, and read like tools are called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from bridge.errors import ResourceNotFoundError, ToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, LIMIT_EXCEEDED
from bridge.server.auth.access import EVERYTHING
from bridge.server.client_values import ClientValues
from bridge.server.listing import CACHE_SCOPE, LIST_TTL_MS, ListKind
from bridge.server.served.feature import Served, check_scopes, refusal, views_of
from bridge.text import clip
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.completion import NO_COMPLETION
from bridge.wire.resources import contents_to_wire, resource_to_wire, template_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping

    from bridge.resources.box import Readable, ResourceBox
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.server.served.feature import Running
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.types import Feature, Json

_Written = TypeVar("_Written")

CACHING = {"ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE}
"""Members of a result of ``resources/read`` in the modern era."""
MAX_URI_CHARS = 1024
"""Maximum length of a URI in an error's data."""
MAX_WATCHED = 1000
"""Maximum number of resources that a session of the handshake era watches."""
MAX_WATCHED_BYTES = 256 * 1024
"""Maximum length of their URIs together."""
RESOURCE_NOT_FOUND = -32002
"""Code of the handshake era for a resource that does not exist."""

_RESOURCES: ListKind[Resource] = ListKind(
    "resources",
    lambda box: box.resources,
    lambda resource: resource.uri,
    lambda resource, _: resource_to_wire(resource),
)
_TEMPLATES: ListKind[ResourceTemplate] = ListKind(
    "resourceTemplates",
    lambda box: box.templates,
    lambda template: str(template.uri_template),
    lambda template, _: template_to_wire(template),
)


class ServedResources(Served):
    """The resources of a server."""

    feature: ClassVar[Feature] = "resources"

    def __init__(self, box: ResourceBox, core: Running, page_size: int | None) -> None:
        super().__init__(core)
        self.box = box
        self.views = views_of(box, page_size, _RESOURCES, _TEMPLATES)
        """The resources by access."""
        self._watched = ClientValues[set[str]](set)
        self._ends = ClientValues[dict[str, Callable[[], None]]](dict)
        self.on_watch: Callable[[str, str, bool], Awaitable[None]] | None = None
        """Called with a session's id, a URI, and True if the session watches it now, before the client is answered."""

    def watched_by(self, client: object) -> set[str]:
        """Return the URIs that a client of the handshake era watches, which may be changed."""
        return self._watched.of(client)

    async def watch(self, client: object, session: str | None, uri: str, access: Access) -> None:
        """Let a client of the handshake era watch a resource.

        Args:
            client: The SDK's record of the client.
            session: Id of its session; None without one.
            uri: URI of the resource.
            access: Permissions of the caller.

        Raises:
            ProtocolError: The caller sees no such resource, lacks a scope of it, or watches too many.
        """
        self.required(uri, access, modern=False)
        watched = self._watched.of(client)
        others = watched - {uri}
        if len(others) >= MAX_WATCHED:
            raise ProtocolError(LIMIT_EXCEEDED, f"a session may watch {MAX_WATCHED} resources; unsubscribe from others")
        length = sum(len(each.encode(errors="surrogatepass")) for each in (uri, *others))
        if length > MAX_WATCHED_BYTES:
            message = f"a session may watch URIs of {MAX_WATCHED_BYTES} bytes, not {length}; unsubscribe from others"
            raise ProtocolError(LIMIT_EXCEEDED, message)
        ends = self._ends.of(client)
        if uri not in ends:
            ends[uri] = await self._begin_watch(uri)
        watched.add(uri)
        if session is not None and self.on_watch is not None:
            await self.on_watch(session, uri, True)

    async def unwatch(self, client: object, session: str | None, uri: str) -> None:
        """Let a client of the handshake era no longer watch a resource."""
        self._watched.of(client).discard(uri)
        self._ends.of(client).pop(uri, _nothing)()
        if session is not None and self.on_watch is not None:
            await self.on_watch(session, uri, False)

    def end_watches(self, client: object) -> None:
        """End what is done for a client of the handshake era that watches resources, after its session."""
        ends = self._ends.of(client)
        while ends:
            ends.popitem()[1]()

    @asynccontextmanager
    async def watching(self, uris: Iterable[str]) -> AsyncIterator[list[str]]:
        """Watch resources in this block, for a client of the modern era; yields those whose changes are announced."""
        ends: dict[str, Callable[[], None]] = {}
        try:
            for uri in uris:
                with suppress(ProtocolError):
                    ends[uri] = await self._begin_watch(uri)
            yield [*ends]
        finally:
            for end in ends.values():
                end()

    async def _begin_watch(self, uri: str) -> Callable[[], None]:
        try:
            return await self.box.begin_watch(uri)
        except (ToolError, ResourceNotFoundError) as error:
            raise ProtocolError(INVALID_PARAMS, str(error), {"uri": uri[:MAX_URI_CHARS]}) from None

    def find(self, uri: str, access: Access = EVERYTHING) -> Readable | None:
        """Return what reads a URI; None if the caller sees no such resource, though another template has it, too."""
        found = self.box.find(uri)
        if found is None or access is EVERYTHING or access.shows(found.resource.name):
            return found
        return None

    def is_readable(self, uri: str, access: Access) -> bool:
        """Return True if the caller sees a resource, and was granted its scopes."""
        found = self.find(uri, access)
        return found is not None and not access.missing(found.resource.name)

    def required(self, uri: str, access: Access, *, modern: bool) -> Readable:
        """Return what reads a URI.

        Raises:
            ProtocolError: The caller sees no such resource, or lacks a scope for it.
        """
        found = self.find(uri, access)
        if found is None:
            raise _not_found(uri, modern=modern)
        check_scopes(found.resource.name, access)
        return found

    async def read(
        self,
        uri: str,
        found: Readable,
        context: InvocationContext,
        write: Callable[[Json], _Written],
        *,
        modern: bool,
    ) -> _Written:
        """Answer a ``resources/read``.

        Args:
            uri: URI of the resource.
            found: Reads it; from `required`, or from `find` for a caller who lacks no scope.
            context: Context of the request.
            write: Writes the result, given as JSON.
            modern: True for a client of version 2026-07-28.

        Raises:
            ProtocolError: It cannot be read, or the function says that there is no such resource.
            InputRequired: The function asked a question that needs another round.
        """
        request, absent = (
            ToolExecutionRequest(found.tool.name, found.arguments),
            partial(_not_found, uri, modern=modern),
        )
        result = await self._produced(found.tool, request, context, lambda: f"the URI {clip(uri)!r}", absent)
        return self.write(found, result, write, modern=modern)

    def write(
        self, found: Readable, result: ToolExecutionResult, write: Callable[[Json], _Written], *, modern: bool
    ) -> _Written:
        """Write what was read; the arguments are those of `read`."""
        wire = contents_to_wire(result)
        if modern:
            wire |= {"resultType": "complete", **CACHING}
        return self._core.write_produced(found.resource.name, wire, write)

    def refusal(self, uri: str, error: BaseException, *, modern: bool) -> ProtocolError | None:
        """Return the error to answer if reading has failed; None for one that is not of the resource."""
        return refusal(error, lambda: f"the URI {clip(uri)!r}", partial(_not_found, uri, modern=modern))

    async def complete(
        self,
        template: str,
        variable: str,
        text: str,
        known: Mapping[str, str],
        context: InvocationContext,
        access: Access,
    ) -> Completion:
        """Return values for a variable of a template, given as text.

        Raises:
            ProtocolError: The caller sees no such template.
        """
        for each in self.views.of(access).box.templates:
            if str(each.uri_template) == template:
                check_scopes(each.name, access)
                return await self._completed(each, variable, text, known, context)
        if self.find(template, access) is not None:  # a resource has no variables
            return NO_COMPLETION
        raise ProtocolError(INVALID_PARAMS, f"there is no resource template {clip(template)!r}")


def _nothing() -> None:
    """End nothing."""


def _not_found(uri: str, *, modern: bool) -> ProtocolError:
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return ProtocolError(code, f"there is no resource {clip(uri)!r}", {"uri": uri[:MAX_URI_CHARS]})
