"""ResourceBox: the resources and templates of a program, with notifications of new content."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakMethod

from bridge.resources.resource import Resource, ResourceTemplate
from bridge.tools.box import Box, TransformedBox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool


Transform = Callable[[tuple[Resource | ResourceTemplate, ...]], Iterable[Resource | ResourceTemplate]]
"""Returns changed resources and templates."""
UriOf = Callable[[str], str | None]
"""Returns a URI for another one, or None."""

_MAX_FOUND = 1000
"""Maximum number of URIs for which `ResourceBox` caches what was found."""
_MAX_FOUND_CHARS = 256
"""Maximum length of such a URI."""


class Readable(NamedTuple):
    """A resource that can be read now."""

    resource: Resource | ResourceTemplate
    tool: Tool
    """Reads it."""
    arguments: dict[str, Any]
    """The values of the template's variables."""


class _Index:
    """Views of a box's items, each made when it is first used.

    A change of the box replaces the whole index, so a look-up that runs meanwhile caches nothing that outlives it.
    """

    def __init__(self, items: Mapping[str, Resource | ResourceTemplate]) -> None:
        self._items = items
        self.found: dict[str, Readable] = {}
        """Results of `look_up`, by URI."""

    @cached_property
    def templates(self) -> tuple[ResourceTemplate, ...]:
        return tuple(item for item in tuple(self._items.values()) if isinstance(item, ResourceTemplate))

    @cached_property
    def _by_specificity(self) -> tuple[tuple[ResourceTemplate, ...], tuple[ResourceTemplate, ...]]:
        """Templates of this process, and those of servers."""
        ordered = sorted(self.templates, key=lambda item: item.uri_template.literal_chars, reverse=True)
        return (
            tuple(item for item in ordered if item.server is None),
            tuple(item for item in ordered if item.server is not None),
        )

    def look_up(self, uri: str) -> Readable | None:
        item, (local, remote) = self._items.get(uri), self._by_specificity
        exact = Readable(item, item.tool, {}) if isinstance(item, Resource) else None
        if exact is not None and exact.resource.server is None:
            found: Readable | None = exact
        else:
            found = _match(local, uri) or exact or _match(remote, uri)
        # Calls do not share a list of values, because their functions may change it.
        if found and len(uri) <= _MAX_FOUND_CHARS and not any(type(each) is list for each in found.arguments.values()):
            if len(self.found) >= _MAX_FOUND:
                self.found.clear()
            self.found[uri] = found
        return found


def _match(templates: Iterable[ResourceTemplate], uri: str) -> Readable | None:
    for template in templates:
        if (values := template.uri_template.match(uri)) is not None:
            return Readable(template, template.tool_of(uri), values)
    return None


class ResourceBox(Box[Resource | ResourceTemplate]):
    """Resources by URI, and templates by their text, in insertion order.

    A URI is read by the resource that has it, or else by the most specific template that it belongs to: the one with
    the longest literal text, and the first of several. Resources and templates of servers follow those of this process.

    Args:
        sources: Resources, templates, decorated functions, objects, modules, or iterables of these.

    Raises:
        DefinitionError: A source has no resources, or an invalid one.
        NameClashError: Two resources have the same URI, or two templates the same text.
    """

    noun = "resources"
    kinds = (Resource, ResourceTemplate)

    def __init__(self, *sources: object) -> None:
        self._watchers: list[Callable[[str], None]] = []
        self.updates = 0
        """Number of changes of contents so far."""
        self._included: list[ResourceBox] = []
        self._index = _Index({})
        super().__init__(*sources)

    def key_of(self, item: Resource | ResourceTemplate) -> str:
        """Return the URI of a resource, or the text of a template."""
        return item.uri if isinstance(item, Resource) else str(item.uri_template)

    def find(self, uri: str) -> Readable | None:
        """Return what reads a URI; None if there is no such resource."""
        index = self._index
        found = index.found.get(uri) or index.look_up(uri)
        if found is None and self._included:  # boxes of servers find what they do not list
            return next((found for box in self._included if (found := box.find(uri)) is not None), None)
        return found

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The resources."""
        return tuple(item for item in self if isinstance(item, Resource))

    @property
    def templates(self) -> tuple[ResourceTemplate, ...]:
        """The templates."""
        return self._index.templates

    def transformed(
        self, transform: Transform, local: Callable[[str], str] | None = None, source: UriOf | None = None
    ) -> ResourceBox:
        """Return a box with the changed resources and templates of this one; it follows later changes.

        Args:
            transform: Receives the current resources and templates and returns those of the new box; called after each
                change.
            local: Returns the URI in the new box for one in this box; None if they are the same.
            source: Returns the URI in this box for one in the new box, or None if it has none; likewise.

        Raises:
            DefinitionError: See the constructor.
            NameClashError: See the constructor.
        """
        return _TransformedResourceBox(self, transform, local or _same, source or _same)

    def _notify(self) -> None:
        self._index = _Index(self._items)
        super()._notify()

    async def begin_watch(self, uri: str, context: InvocationContext | None = None) -> Callable[[], None]:
        """Make sure that `updated` is called for a resource; a server does so for each client that watches it.

        Args:
            uri: URI of the resource.
            context: Context of the client's request, for a resource whose changes its caller alone is notified of; None
                without one.

        Returns:
            A function that ends it.

        Raises:
            ResourceNotFoundError: There is no such resource.
            ToolError: Changes of the resource are not announced.
        """
        for box in self._included:
            if box.find(uri) is not None:
                return await box.begin_watch(uri, context)
        return _nothing

    def include(self, box: ResourceBox) -> None:
        """Announce the changes of another box's resources, too, which this box has as well."""
        self._included.append(box)
        box.on_update(self.updated)

    def updated(self, uri: str) -> None:
        """Notify the watchers of a resource that its content has changed; from any thread.

        Args:
            uri: URI of the resource.
        """
        self.updates += 1
        for watcher in tuple(self._watchers):
            watcher(uri)

    def on_update(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Call ``watcher`` with the URI after each `updated`, in its thread. Returns a function that unsubscribes."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)


class _TransformedResourceBox(TransformedBox[Resource | ResourceTemplate], ResourceBox):
    """A box that follows another one while it is referenced itself; made by `ResourceBox.transformed`."""

    _source: ResourceBox

    def __init__(
        self, source: ResourceBox, transform: Transform, local: Callable[[str], str], source_uri: UriOf
    ) -> None:
        self._local, self._source_uri = local, source_uri
        super().__init__(source, transform)
        update = WeakMethod(self._update_content, lambda _: end())

        def follow(uri: str) -> None:
            if (alive := update()) is not None:
                alive(uri)

        end = source.on_update(follow)

    def find(self, uri: str) -> Readable | None:
        """Return what reads a URI, also one that the other box finds and does not list; None if there is none."""
        if (found := super().find(uri)) is not None or (source_uri := self._source_uri(uri)) is None:
            return found
        if (found := self._source.find(source_uri)) is None or not isinstance(found.resource, Resource):
            return None
        changed = next(iter(self._transform((found.resource,))), None)
        return Readable(changed, changed.tool, {}) if isinstance(changed, Resource) else None

    async def begin_watch(self, uri: str, context: InvocationContext | None = None) -> Callable[[], None]:
        """Watch the resource of the other box; see `ResourceBox.begin_watch`."""
        source_uri = self._source_uri(uri)
        return _nothing if source_uri is None else await self._source.begin_watch(source_uri, context)

    def _update_content(self, uri: str) -> None:
        self.updated(self._local(uri))


def _same(uri: str) -> str:
    return uri


def _nothing() -> None:
    """Do nothing: this process announces the changes of its resources itself."""
