"""Events: a source of types of events, which a server lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import NameClashError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.events.event_type import EventType
    from bridge.tools.context import InvocationContext


class Events:
    """Base of sources of events."""

    @property
    def are_offered(self) -> bool:
        """True if there may be events."""
        return True

    def may_show(self, shows: Callable[[EventType], bool]) -> bool:  # noqa: ARG002 - for subclasses
        """Return False if it is known that ``shows`` is False for all types."""
        return True

    def local(self) -> tuple[EventType, ...]:
        """Return the types whose events this process emits."""
        return ()

    async def list(self, context: InvocationContext | None = None) -> tuple[EventType, ...]:  # noqa: ARG002 - for subclasses
        """Return the types that the caller of a request sees.

        Args:
            context: Context of the request; None for none.

        Raises:
            ServerError: They cannot be listed.
        """
        return self.local()

    def changed(self, change: Callable[[EventType], EventType | None]) -> Events:
        """Return these types, changed or selected, also later.

        Args:
            change: Returns the type to offer for one; None to leave it out.
        """
        return ChangedEvents(self, change)

    def beside(self, others: Sequence[Events]) -> Events:
        """Return these types and those of other sources.

        Raises:
            NameClashError: Two types of this process have the same name.
        """
        if not others:
            return self
        require_distinct(each for source in (self, *others) for each in source.local())
        return CombinedEvents((self, *others))


class LocalEvents(Events):
    """Types of events of this process.

    Raises:
        NameClashError: Two have the same name.
    """

    def __init__(self, types: Iterable[EventType]) -> None:
        self._types = tuple(each for each in types if each.enabled)
        require_distinct(self._types)

    def may_show(self, shows: Callable[[EventType], bool]) -> bool:
        """Return True if one of the types is shown."""
        return any(map(shows, self._types))

    def local(self) -> tuple[EventType, ...]:
        """Return the types; see `Events.local`."""
        return self._types


class CombinedEvents(Events):
    """The types of several sources; of two with the same name, the first."""

    def __init__(self, sources: Iterable[Events]) -> None:
        self.sources = tuple(sources)

    @property
    def are_offered(self) -> bool:
        """True if a source may have events."""
        return any(each.are_offered for each in self.sources)

    def may_show(self, shows: Callable[[EventType], bool]) -> bool:
        """Return False if no source shows one; see `Events.may_show`."""
        return any(each.are_offered and each.may_show(shows) for each in self.sources)

    def local(self) -> tuple[EventType, ...]:
        """Return the types of this process of all sources; see `Events.local`."""
        return _first(type_ for source in self.sources for type_ in source.local())

    async def list(self, context: InvocationContext | None = None) -> tuple[EventType, ...]:
        """Return the types of all sources; see `Events.list`."""
        found = [await source.list(context) for source in self.sources if source.are_offered]
        return _first(type_ for types in found for type_ in types)


class ChangedEvents(Events):
    """The types of another source, changed or selected; made by `Events.changed`."""

    def __init__(self, source: Events, change: Callable[[EventType], EventType | None]) -> None:
        self._source = source
        self._change = change

    @property
    def are_offered(self) -> bool:
        """True if the other source may have events."""
        return self._source.are_offered

    def may_show(self, shows: Callable[[EventType], bool]) -> bool:
        """Return False if the other source shows none that is offered; see `Events.may_show`."""
        return self._source.may_show(lambda each: (found := self._change(each)) is not None and shows(found))

    def local(self) -> tuple[EventType, ...]:
        """Return the changed types of this process; see `Events.local`."""
        return tuple(changed for each in self._source.local() if (changed := self._change(each)))

    async def list(self, context: InvocationContext | None = None) -> tuple[EventType, ...]:
        """Return the changed types; see `Events.list`."""
        return tuple(changed for each in await self._source.list(context) if (changed := self._change(each)))


def require_distinct(types: Iterable[EventType]) -> None:
    """Check that no two types have the same name.

    Raises:
        NameClashError: Two have.
    """
    found: dict[str, EventType] = {}
    for each in types:
        if (other := found.setdefault(each.name, each)) is not each:
            raise NameClashError(each.name, other.source, each.source, "events")


def _first(types: Iterable[EventType]) -> tuple[EventType, ...]:
    found: dict[str, EventType] = {}
    for each in types:
        found.setdefault(each.name, each)
    return tuple(found.values())
