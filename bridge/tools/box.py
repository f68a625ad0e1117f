"""Box: an ordered collection of tools, resources or prompts by key, with change notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from bridge.errors import DefinitionError, NameClashError
from bridge.text import nearest
from bridge.tools.decoration import Published, nothing_in
from bridge.tools.function import found_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T", bound=Published)


class Box(Generic[T]):
    """Items by key, in insertion order; base of `bridge.ToolBox`, `bridge.ResourceBox` and `bridge.PromptBox`.

    Args:
        sources: Items, decorated functions, objects, modules, or iterables of these (see `bridge.tools_from`).

    Raises:
        DefinitionError: A source has no items, or an invalid one.
        NameClashError: Two items have the same key.
    """

    noun: ClassVar[str]
    """The items, in the plural: ``tools``."""
    kinds: ClassVar[tuple[type, ...]]
    """Classes of the items."""

    def __init__(self, *sources: object) -> None:
        self._items: dict[str, T] = {}
        self.version = 0
        """Number of changes so far."""
        self._listeners: list[Callable[[], None]] = []
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
        added = self._by_key([item for source in sources for item in self._items_of(source)], self._items)
        if added:
            self._items.update(added)
            self._notify()

    def remove(self, *keys: str) -> None:
        """Remove items by key.

        Raises:
            DefinitionError: One of the keys does not exist; nothing was removed.
        """
        for key in keys:
            if key not in self._items:
                near = nearest(key, self._items)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise DefinitionError(f"there is no {key!r} among the {self.noun}{hint}")
        self.replace([item for key, item in self._items.items() if key not in keys])

    def replace(self, items: Iterable[T]) -> None:
        """Replace all items, and notify the listeners if anything changed.

        Raises:
            DefinitionError: A key is not allowed; nothing was changed.
            NameClashError: Two items have the same key; nothing was changed.
        """
        by_key = self._by_key(items, {})
        if list(by_key.values()) != list(self._items.values()):
            self._items = by_key
            self._notify()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, in the thread that made it. Returns a function that unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify(self) -> None:
        self.version += 1
        for listener in tuple(self._listeners):
            listener()

    def _items_of(self, source: object) -> list[T]:
        items: list[Any] = [item for item in found_in(source) if isinstance(item, self.kinds)]
        if not items:
            raise nothing_in(source, self.noun)
        return items

    def _by_key(self, items: Iterable[T], present: dict[str, T]) -> dict[str, T]:
        """Return items by key after checking them against each other and the present ones."""
        by_key: dict[str, T] = {}
        for item in items:
            key = self.key_of(item)
            if (other := present.get(key) or by_key.get(key)) is not None:
                raise NameClashError(key, other.source, item.source, self.noun)
            by_key[key] = item
        return by_key

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))  # a copy: items may change during iteration

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._items)})"
