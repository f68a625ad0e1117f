"""The resources of one server: found by access, and read like tools are called."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ResourceNotFoundError, ToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, LIMIT_EXCEEDED
from bridge.resources.box import Readable
from bridge.resources.resource import Resource
from bridge.server.auth.access import EVERYTHING
from bridge.server.lists.feature import Served, check_scopes, in_version, refusal, views_of
from bridge.server.lists.listing import CACHE_SCOPE, LIST_TTL_MS, ListKind
from bridge.server.middleware import Around, run_other, unknown_run_by
from bridge.text import clip
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.completion import NO_COMPLETION
from bridge.tools.middleware import ReadResourceRequest
from bridge.wire.resources import contents_to_wire, resource_to_wire, template_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from bridge.protocol.session import Session
    from bridge.resources.box import ResourceBox
    from bridge.resources.resource import ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.server.lists.feature import Running
    from bridge.server.results.kept_results import KeptResults
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import Layer
    from bridge.types import Feature, Json

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

    def __init__(self, box: ResourceBox, core: Running, page_size: int | None, kept: KeptResults | None = None) -> None:
        super().__init__(core)
        self.box = box
        self._kept = kept
        self.views = views_of(box, page_size, _RESOURCES, _TEMPLATES)
        """The resources by access."""

    async def watch(self, session: Session, uri: str, access: Access, context: InvocationContext) -> None:
        """Let a session of the handshake era watch a resource.

        Args:
            session: The session.
            uri: URI of the resource.
            access: Permissions of the caller.
            context: Context of the request.

        Raises:
            ProtocolError: The caller sees no such resource, lacks a scope of it, or watches too many.
        """
        self.required(uri, access, modern=False)
        others = session.watched.keys() - {uri}
        if len(others) >= MAX_WATCHED:
            raise ProtocolError(LIMIT_EXCEEDED, f"a session may watch {MAX_WATCHED} resources; unsubscribe from others")
        length = sum(len(each.encode(errors="surrogatepass")) for each in (uri, *others))
        if length > MAX_WATCHED_BYTES:
            message = f"a session may watch URIs of {MAX_WATCHED_BYTES} bytes, not {length}; unsubscribe from others"
            raise ProtocolError(LIMIT_EXCEEDED, message)
        if uri not in session.watched:
            session.watched[uri] = _not_yet
            try:
                await self._begin_watch_in(session, uri, context)
            except ProtocolError:
                if session.watched.get(uri) is _not_yet:
                    del session.watched[uri]
                raise

    def change_watched(self, session: Session, added: Iterable[str], removed: Iterable[str] = ()) -> list[str]:
        """Change what a session watches as another replica has; return what is new here, for `begin_watching`."""
        for each in removed:
            session.watched.pop(each, _not_yet)()
        new = [each for each in added if each not in session.watched]
        session.watched.update(dict.fromkeys(new, _not_yet))
        return new

    async def begin_watching(self, session: Session, uris: Iterable[str]) -> None:
        """Make sure that changes of resources that a session watches are announced, where that is possible."""
        for each in uris:
            with suppress(ProtocolError):
                await self._begin_watch_in(session, each)

    async def _begin_watch_in(self, session: Session, uri: str, context: InvocationContext | None = None) -> None:
        end = await self._begin_watch(uri, context)
        if session.watched.get(uri) is _not_yet:
            session.watched[uri] = end
        else:  # it no longer watches the resource, or has begun to twice
            end()

    @asynccontextmanager
    async def watching(self, uris: Iterable[str], context: InvocationContext) -> AsyncIterator[list[str]]:
        """Watch resources in this block, for a client of the modern era; yields those whose changes are announced."""
        ends: dict[str, Callable[[], None]] = {}
        try:
            for uri in uris:
                with suppress(ProtocolError):
                    ends[uri] = await self._begin_watch(uri, context)
            yield [*ends]
        finally:
            for end in ends.values():
                end()

    async def _begin_watch(self, uri: str, context: InvocationContext | None) -> Callable[[], None]:
        try:
            return await self.box.begin_watch(uri, context)
        except (ToolError, ResourceNotFoundError) as error:
            raise ProtocolError(INVALID_PARAMS, str(error), {"uri": uri[:MAX_URI_CHARS]}) from None

    def find(self, uri: str, access: Access = EVERYTHING) -> Readable | None:
        """Return what reads a URI; None if the caller sees no such resource, though another template has it, too."""
        if self._kept is not None and (kept := self._kept.readable(uri)) is not None:
            return kept
        found = self.box.find(uri)
        if found is None or access is EVERYTHING or access.shows(found.resource):
            return found
        visible = self.views.of(access).box.find(uri)  # perhaps an older version
        key_of = self.box.key_of
        return visible if visible is not None and key_of(visible.resource) == key_of(found.resource) else None

    def is_readable(self, uri: str, access: Access) -> bool:
        """Return True if the caller sees a resource, and was granted its scopes."""
        found = self.find(uri, access)
        return found is not None and not access.missing(found.resource.name)

    def required(self, uri: str, access: Access, *, modern: bool, meta: Mapping[str, Any] | None = None) -> Readable:
        """Return what reads a URI.

        Args:
            uri: The URI.
            access: Permissions of the caller.
            modern: True for a client of version 2026-07-28.
            meta: ``_meta`` of a request, which may name a version.

        Raises:
            ProtocolError: The caller sees no such resource, or lacks a scope for it, or there is no such version.
        """
        found = self.find(uri, access)
        if found is None:
            raise _not_found(uri, modern=modern)
        resource = found.resource
        check_scopes(resource.name, access)
        if meta and resource.metadata:
            versions = self.views.of(access).box.versions_of(self.box.key_of(resource))
            other = in_version(resource, versions, meta, f"the resource {clip(uri)!r}")
            if other is not resource:
                return Readable(
                    other, other.tool if isinstance(other, Resource) else other.tool_of(uri), found.arguments
                )
        return found

    async def read(
        self,
        uri: str,
        found: Readable,
        context: InvocationContext,
        write: Callable[[Json], bytes],
        *,
        modern: bool,
    ) -> bytes:
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

    async def read_within(
        self,
        layers: tuple[Layer, ...],
        uri: str,
        context: InvocationContext,
        write: Callable[[Json], bytes],
        *,
        access: Access,
        meta: Mapping[str, Any],
        modern: bool,
    ) -> bytes:
        """Answer a ``resources/read`` with middleware around it.

        Args:
            layers: The middleware, which may answer for a resource that does not exist.
            uri: URI of the resource.
            context: As for `read`.
            write: As for `read`.
            access: Permissions of the caller.
            meta: ``_meta`` of the request, which may name a version.
            modern: As for `read`.

        Raises:
            ProtocolError: As by `read`, or there is no such resource, or the middleware refused.
            InputRequired: As by `read`, or by the middleware.
        """
        found = self.find(uri, access)
        if found is not None or not access.sees_all_of(uri):
            found = self.required(uri, access, modern=modern, meta=meta)

        async def last(request: ReadResourceRequest, context: InvocationContext) -> ToolExecutionResult:
            if found is None or request.uri != uri:
                other = self.required(request.uri, access, modern=modern)
                return await run_other(other.tool, other.arguments, context)
            return await found.tool.executor.execute(ToolExecutionRequest(found.tool.name, found.arguments), context)

        revision = (self.box.version, self.box.updates)
        executor = Around(layers, ReadResourceRequest(uri, revision=revision), last)
        name = uri if found is None else found.resource.name
        result = await self._produced(
            unknown_run_by(executor) if found is None else found.tool.run_by(executor),
            ToolExecutionRequest(name),
            context,
            lambda: f"the URI {clip(uri)!r}",
            partial(_not_found, uri, modern=modern),
            is_known=found is not None,
        )
        return self._write(name, result, write, modern=modern)

    def write(
        self, found: Readable, result: ToolExecutionResult, write: Callable[[Json], bytes], *, modern: bool
    ) -> bytes:
        """Write what was read; the arguments are those of `read`."""
        return self._write(found.resource.name, result, write, modern=modern)

    def _write(self, name: str, result: ToolExecutionResult, write: Callable[[Json], bytes], *, modern: bool) -> bytes:
        wire = contents_to_wire(result)
        if modern:
            wire |= {"resultType": "complete", **CACHING}
        return self._core.write_produced(name, wire, write)

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


def _not_found(uri: str, *, modern: bool) -> ProtocolError:
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return ProtocolError(code, f"there is no resource {clip(uri)!r}", {"uri": uri[:MAX_URI_CHARS]})


def _not_yet() -> None:
    """End the watching of a resource that has not yet begun."""
