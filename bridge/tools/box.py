"""Box: an ordered collection of tools, resources or prompts by key, with change notifications."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from weakref import WeakMethod

from bridge.errors import DefinitionError, NameClashError
from bridge.text import nearest
from bridge.tools.decoration import Published, nothing_in
from bridge.tools.function import found_in
from bridge.tools.labels import version_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T", bound=Published)
_logger = logging.getLogger("bridge.tools")


class Box(Generic[T]):
    """Items by key, in insertion order; base of `bridge.ToolBox`, `bridge.ResourceBox` and `bridge.prompts.PromptBox`.

    Of several versions of an item, with the same key, a box has the newest one, and `all_versions` has the others.
    Items that are not enabled are kept, and hidden as if they were not there.

    Args:
        sources: Items, decorated functions, objects, modules, or iterables of these (see `bridge.tools_from`).

    Raises:
        DefinitionError: A source has no items, or an invalid one.
        NameClashError: Two items have the same key, and not different versions.
    """

    noun: ClassVar[str]
    """The items, in the plural: ``tools``."""
    kinds: ClassVar[tuple[type, ...]]
    """Classes of the items."""

    def __init__(self, *sources: object) -> None:
        self._all: dict[tuple[str, str | None], T] = {}
        """Every item by key and version."""
        self._items: dict[str, T] = {}
        """The newest enabled item of each key."""
        self._versioned: dict[str, T] = {}
        """An item of each key whose items have versions."""
        self._versions: dict[str, dict[str, T]] = {}
        """The enabled versions of the keys that have several, the newest first."""
        self._feed: tuple[T, ...] | None = None
        """The value of `feed`; None if all items are enabled, and none has a version."""
        self._switches: dict[tuple[str, str], bool] = {}
        """Calls of `enable` and `disable` by key and tag; the last one that applies to an item decides."""
        self.version = 0
        """Number of changes so far."""
        self._listeners: list[Callable[[], None]] = []
        self.feeder: object = None
        """The object that fills this box from others; the box keeps it alive."""
        self.sources: tuple[Box[Any], ...] = ()
        """The boxes that this one follows."""
        self.add(*sources)

    def key_of(self, item: T) -> str:
        """Return the key of an item.

        Raises:
            DefinitionError: The key is not allowed.
        """
        raise NotImplementedError

    def add(self, *sources: object) -> None:
        """Append items: all of them, or none if one is invalid.

        Raises:
            DefinitionError: See the constructor.
            NameClashError: See the constructor.
        """
        added = self._by_key([item for source in sources for item in self._items_of(source)], self._all)
        if self._switches or any(version is not None or not item.enabled for (_, version), item in added.items()):
            self._take({**self._all, **added})
        elif added:
            self._all.update(added)
            self._items.update({key: item for (key, _), item in added.items()})
            self._feed = None if self._feed is None else (*self._feed, *added.values())
            self._notify()

    def remove(self, *keys: str) -> None:
        """Remove items by key, in all versions.

        Raises:
            DefinitionError: One of the keys does not exist; nothing was removed.
        """
        for key in keys:
            self._require(key, {each for each, _ in self._all})
        self.replace([item for (key, _), item in self._all.items() if key not in keys])

    def replace(self, items: Iterable[T]) -> None:
        """Replace all items, and notify the listeners if anything changed.

        Raises:
            DefinitionError: A key is not allowed; nothing was changed.
            NameClashError: Two items have the same key; nothing was changed.
        """
        by_key = self._by_key(items, {})
        if list(by_key.values()) != list(self._all.values()):
            self._take(by_key)

    def enable(self, *keys: str, tags: Iterable[str] = ()) -> None:
        """Show items, and notify the listeners.

        Args:
            keys: Keys or names of items.
            tags: Tags of items, also of those that are added later.

        Raises:
            DefinitionError: One of the keys does not exist; nothing was changed.
        """
        self._switch(keys, tags, to=True)

    def disable(self, *keys: str, tags: Iterable[str] = ()) -> None:
        """Hide items, and notify the listeners; the arguments and errors are those of `enable`."""
        self._switch(keys, tags, to=False)

    @property
    def disabled(self) -> list[str]:
        """The keys of the items that are hidden."""
        return list(dict.fromkeys(key for key, _ in self._all if key not in self._items))

    @property
    def all_versions(self) -> tuple[T, ...]:
        """The enabled items with their older versions, in insertion order, the versions of one the newest first."""
        if not self._versions:
            return tuple(self._items.values())
        return tuple(
            each
            for key, item in tuple(self._items.items())
            for each in (self._versions[key].values() if key in self._versions else (item,))
        )

    @property
    def feed(self) -> tuple[T, ...]:
        """The items for boxes that follow this one: in all versions, without those that were disabled here.

        Those that were made without being enabled are among them, because a following box may enable them.
        """
        return tuple(self._items.values()) if self._feed is None else self._feed

    @property
    def kept(self) -> tuple[T, ...]:
        """All items, in all versions, also those that are not enabled."""
        return tuple(self._all.values())

    def versions_of(self, key: str) -> dict[str, T]:
        """Return the enabled items of a key by version, the newest first; empty for one without versions."""
        if key in self._versions:
            return self._versions[key]
        item = self._items.get(key)
        return {} if item is None or item.version is None else {item.version: item}

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, in the thread that made it. Returns a function that unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def touch(self) -> None:
        """Notify the listeners although the items are the same, such as of items that some callers see."""
        self._notify()

    def follows(self, other: Box[Any]) -> bool:
        """True if this box is another one, or follows it, perhaps by way of others."""
        return self is other or any(each.follows(other) for each in self.sources)

    def has(self, name: str) -> bool:
        """True if an item has this key or name, enabled or not."""
        return any(name in (key, item.name) for (key, _), item in self._all.items())

    def _switch(self, keys: tuple[str, ...], tags: Iterable[str], *, to: bool) -> None:
        for key in keys:
            if not self.has(key):
                self._require(key, {each for each, _ in self._all})
        for switch in (*(("key", key) for key in keys), *(("tag", tag) for tag in tags)):
            self._switches.pop(switch, None)
            self._switches[switch] = to
        self._take(self._all)

    def _require(self, key: str, keys: Iterable[str]) -> None:
        known = sorted(keys)
        if key not in known:
            near = nearest(key, known)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DefinitionError(f"there is no {key!r} among the {self.noun}{hint}")

    def _take(self, by_key: dict[tuple[str, str | None], T]) -> None:
        """Use these items, of which the enabled ones are shown."""
        items: dict[str, T] = {}
        versions: dict[str, dict[str, T]] = {}
        feed: list[T] = []
        for (key, version), given in by_key.items():
            if (item := self._switched(key, given)) is None:
                continue
            feed.append(item)
            if not item.enabled:
                continue
            if version is not None and (present := items.get(key)) is not None:
                versions.setdefault(key, {str(present.version): present})[version] = item
            items[key] = item
        for key, found in versions.items():
            versions[key] = {each: found[each] for each in sorted(found, key=version_order, reverse=True)}
            items[key] = next(iter(versions[key].values()))
        self._versioned = {key: item for (key, version), item in by_key.items() if version is not None}
        before = self._items, self._versions, self.feed
        self._all, self._items, self._versions, self._feed = by_key, items, versions, tuple(feed)
        if [*before[0].values()] != [*items.values()] or before[1:] != (versions, self._feed):
            self._notify()

    def _switched(self, key: str, item: T) -> T | None:
        """Return an item as it is enabled now, for this box and those that follow it; None if it is disabled here."""
        if not self._switches:
            return item
        names, tags, switch = (key, item.name), item.tags, None
        for (kind, name), to in self._switches.items():
            if name in (names if kind == "key" else tags):
                switch = to
        if switch and not item.enabled:
            return replace(item, enabled=True)  # type: ignore[type-var]  # all kinds are dataclasses
        return None if switch is False else item

    def _notify(self) -> None:
        self.version += 1
        for listener in tuple(self._listeners):
            listener()

    def _items_of(self, source: object) -> list[T]:
        items: list[Any] = [item for item in found_in(source) if isinstance(item, self.kinds)]
        if not items:
            raise nothing_in(source, self.noun)
        return items

    def _by_key(self, items: Iterable[T], present: dict[tuple[str, str | None], T]) -> dict[tuple[str, str | None], T]:
        """Return items by key and version after checking them against each other and the present ones."""
        by_key: dict[tuple[str, str | None], T] = {}
        versioned = dict(self._versioned) if present else {}
        for item in items:
            key, version = self.key_of(item), item.version
            # Versions differ, and an item without one has no others.
            rivals = ((key, version), (key, None))
            other = next((rival for each in (present, by_key) for at in rivals if (rival := each.get(at))), None)
            if other is None and version is None:
                other = versioned.get(key)
            if other is not None:
                raise NameClashError(key, other.source, item.source, self.noun)
            by_key[key, version] = item
            if version is not None:
                versioned[key] = item
        return by_key

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))  # a copy: items may change during iteration

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._items)})"


class TransformedBox(Box[T]):
    """A box that follows another one while it is referenced itself.

    Args:
        source: The other box.
        transform: Receives the items of the other box, in all versions, and returns those of this one; called after
            each change.

    Raises:
        DefinitionError: An item is invalid.
        NameClashError: Two items have the same key.
    """

    def __init__(self, source: Box[T], transform: Callable[[tuple[T, ...]], Iterable[T]]) -> None:
        super().__init__()
        self._source = source
        self.sources = (source,)
        self.use(transform)
        update = WeakMethod(self._update, lambda _: end())

        def follow() -> None:
            if (alive := update()) is not None:
                alive()

        end = source.on_change(follow)  # weakly: the source does not keep this box

    def use(self, transform: Callable[[tuple[T, ...]], Iterable[T]]) -> None:
        """Use another transform from now on, if its items are valid; listeners are notified if the items change."""
        super().replace(transform(self._source.feed))
        self._transform = transform

    def add(self, *sources: object) -> None:
        """Refuse to add items."""
        if sources:
            raise self._fixed()

    def replace(self, items: Iterable[T]) -> None:  # noqa: ARG002 - the base's
        """Refuse to replace items."""
        raise self._fixed()

    def _update(self) -> None:
        try:
            self.use(self._transform)
        except Exception:
            _logger.exception(
                "the changed %s of %r cannot be transformed; the previous %s stay in use", self.noun, self, self.noun
            )

    def _fixed(self) -> DefinitionError:
        return DefinitionError(f"{self!r} follows another box; change that one, or what `use` does with its tools")
