"""The resources of one server: found by access, and read like tools are called."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ResourceNotFoundError, ToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, LIMIT_EXCEEDED
from bridge.resources.box import Readable, ResourceBox
from bridge.resources.resource import Resource
from bridge.server.auth.access import EVERYTHING
from bridge.server.lists.feature import ServedFeature, check_scopes, in_version
from bridge.server.lists.listing import CACHE_SCOPE, LIST_TTL_MS, ListKind
from bridge.text import clip
from bridge.wire.resources import resource_to_wire, template_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from bridge.protocol.session import Session
    from bridge.resources.resource import ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.server.results.kept_results import KeptResults
    from bridge.tools.context import InvocationContext
    from bridge.types import Feature

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


class ServedResources(ServedFeature[ResourceBox, Readable]):
    """The resources of a server."""

    feature: ClassVar[Feature] = "resources"

    def __init__(self, box: ResourceBox, page_size: int | None, kept: KeptResults | None = None) -> None:
        super().__init__(box, page_size, _RESOURCES, _TEMPLATES)
        self._kept = kept

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

    def find(self, key: str, access: Access = EVERYTHING) -> Readable | None:
        """Return what reads a URI; None if the caller sees no such resource, though another template has it, too."""
        if self._kept is not None and (kept := self._kept.readable(key)) is not None:
            return kept
        found = self.box.find(key)
        if found is None or access is EVERYTHING or access.shows(found.resource):
            return found
        visible = self.views.of(access).box.find(key)  # perhaps an older version
        key_of = self.box.key_of
        return visible if visible is not None and key_of(visible.resource) == key_of(found.resource) else None

    def is_readable(self, uri: str, access: Access) -> bool:
        """Return True if the caller sees a resource, and was granted its scopes."""
        found = self.find(uri, access)
        return found is not None and not access.missing(found.resource.name)

    def required(self, key: str, access: Access, *, modern: bool, meta: Mapping[str, Any] | None = None) -> Readable:
        """Return what reads a URI; see `ServedFeature.required`."""
        found = self.find(key, access)
        if found is None:
            raise no_resource(key, modern=modern)
        resource = found.resource
        check_scopes(resource.name, access)
        if meta and resource.metadata:
            versions = self.views.of(access).box.versions_of(self.box.key_of(resource))
            other = in_version(resource, versions, meta, f"the resource {clip(key)!r}")
            if other is not resource:
                return Readable(
                    other, other.tool if isinstance(other, Resource) else other.tool_of(key), found.arguments
                )
        return found

    def item_of(self, found: Readable) -> Resource | ResourceTemplate:
        """Return the resource, or the template that it belongs to."""
        return found.resource

    def completed(self, key: str, access: Access) -> ResourceTemplate | None:
        """Return the template of a text; see `ServedFeature.completed`."""
        for each in self.views.of(access).box.templates:
            if str(each.uri_template) == key:
                check_scopes(each.name, access)
                return each
        if self.find(key, access) is not None:
            return None
        raise ProtocolError(INVALID_PARAMS, f"there is no resource template {clip(key)!r}")


def no_resource(uri: str, *, modern: bool) -> ProtocolError:
    """Return the error for a resource that does not exist."""
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return ProtocolError(code, f"there is no resource {clip(uri)!r}", {"uri": uri[:MAX_URI_CHARS]})


def _not_yet() -> None:
    """End the watching of a resource that has not yet begun."""
