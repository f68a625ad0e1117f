"""Notifications of changes: of the lists of a server, and of the content of its resources."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from bridge.portal import call_soon_here

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.features import Features
    from bridge.tools.caller import Caller
    from bridge.types import Feature


class Change(NamedTuple):
    """A changed list, or the new content of a resource."""

    feature: Feature
    uri: str | None = None
    """The resource that has new content; None for the list."""
    caller: tuple[str, str] | None = None
    """`Caller.identity` of the only caller who is notified; None for all."""

    def is_for(self, caller: Caller | None) -> bool:
        """Return True if a caller may be notified."""
        return self.caller is None or (caller is not None and caller.identity == self.caller)


TOOLS = Change("tools")


class Changes:
    """Notifies listeners of changes of the features, each on its own event loop.

    Equal changes before a listener has run are notified once.
    """

    def __init__(self, features: Features) -> None:
        self._features = features
        self._listeners: dict[object, _Listener] = {}
        self._ends: list[Callable[[], None]] = []
        self.start()

    def start(self) -> None:
        """Listen to the features."""
        features = self._features
        self._ends = [box.on_change(partial(self.notify, Change(name))) for name, box in features.boxes.items()]
        if features.resources is not None:
            self._ends.append(features.resources.on_update(lambda uri: self.notify(Change("resources", uri))))
        if features.caller_features is not None:
            self._ends.append(features.caller_features.on_change(lambda *change: self.notify(Change(*change))))

    def close(self) -> None:
        """Stop listening to the features."""
        while self._ends:
            self._ends.pop()()

    def follow(self, features: Features) -> None:
        """Listen to other features from now on, if to any."""
        was_listening = bool(self._ends)
        self.close()
        self._features = features
        if was_listening:
            self.start()

    def listen(self, listener: Callable[[frozenset[Change]], None]) -> Callable[[], None]:
        """Call ``listener`` on this event loop after changes; return a function that ends that, and may be repeated."""
        token = object()
        self._listeners[token] = _Listener(listener)

        def end() -> None:
            self._listeners.pop(token, None)

        return end

    def notify(self, change: Change = TOOLS) -> None:
        """Notify every listener; from any thread."""
        for listener in tuple(self._listeners.values()):
            listener.schedule(change)

    def notify_lists(self) -> None:
        """Notify every listener of a change of every list; from any thread."""
        for name in self._features.boxes:
            self.notify(Change(name))

    def __len__(self) -> int:
        return len(self._listeners)


class _Listener:
    """A listener, and the event loop on which it is called."""

    def __init__(self, listener: Callable[[frozenset[Change]], None]) -> None:
        self._call_soon = call_soon_here()
        self._listener = listener
        self._lock = Lock()
        self._changes: dict[Change, None] = {}
        """Changes of which the listener has not heard; any thread adds to them."""

    def schedule(self, change: Change) -> None:
        with self._lock:
            is_scheduled = bool(self._changes)
            self._changes[change] = None
        if is_scheduled:
            return
        with suppress(RuntimeError):  # the loop has ended
            self._call_soon(self._call)

    def _call(self) -> None:
        with self._lock:  # before the call, so that a change during it is notified
            changes, self._changes = self._changes, {}
        self._listener(frozenset(changes))
