"""PollingResourceBox: resources that are examined for changes at intervals."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, RLock, Thread
from typing import TYPE_CHECKING
from weakref import ref

from anyio import to_thread

from bridge.resources.box import ResourceBox
from bridge.tools.checks import require_callable, require_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.context import InvocationContext

POLL_SECONDS = 2.0
"""Default interval, in seconds."""

_logger = logging.getLogger("bridge.resources")


@dataclass(slots=True)
class _Watched:
    version: object
    watchers: int = 0


class PollingResourceBox(ResourceBox):
    """ResourceBox that finds changes by itself, for resources that do not announce theirs, such as files.

    While it is served, one thread examines the list and the resources that clients watch, at intervals. In a server
    with several workers, each of them examines its own box.

    Args:
        sources: Resources and templates, as for `ResourceBox`.
        version: Returns a value for the URI of a watched resource that is different after each change of its content,
            such as the time of a file's last change; None if there is no such resource. Called in worker threads.
        listing: Returns the current resources and templates, in place of ``sources``, as the same objects if they have
            not changed; likewise. None if the list does not change.
        interval_seconds: Seconds between two examinations.

    Raises:
        DefinitionError: As by `ResourceBox`, a function does not take these arguments, or the interval is not positive.
    """

    def __init__(
        self,
        *sources: object,
        version: Callable[[str], object],
        listing: Callable[[], Iterable[Resource | ResourceTemplate]] | None = None,
        interval_seconds: float = POLL_SECONDS,
    ) -> None:
        self._version = require_callable(version, 1, "version", "the URI")
        self._listing = listing
        require_seconds(interval_seconds, "interval_seconds", optional=False)
        self._interval_seconds = interval_seconds
        self._watched: dict[str, _Watched] = {}
        self._changing = Lock()
        self._polling = RLock()
        self._stop: Event | None = None
        super().__init__(*sources)
        if listing is not None:
            self.poll()

    def poll(self) -> None:
        """Look for changes now, for example after the program itself has changed something.

        It runs the functions of the constructor in this thread, which should not be that of an event loop.

        Raises:
            NameClashError: Two listed items have the same URI; the list stays as it was.
        """
        with self._polling:
            if self._listing is not None:
                self.replace(self._listing())
            for uri, watched in tuple(self._watched.items()):
                version = self._version(uri)
                if version != watched.version:
                    watched.version = version
                    self.updated(uri)

    async def begin_watch(self, uri: str, context: InvocationContext | None = None) -> Callable[[], None]:  # noqa: ARG002
        """Examine a resource from now on; see `ResourceBox.begin_watch`."""
        version = await to_thread.run_sync(self._version, uri)
        with self._changing:
            self._watched.setdefault(uri, _Watched(version)).watchers += 1
        return partial(self._end_watch, uri)

    def on_update(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Call ``watcher`` after each change, and poll while there are watchers; see `ResourceBox.on_update`."""
        end = super().on_update(watcher)
        with self._changing:
            if self._stop is None:
                self._stop = Event()
                given = (ref(self), self._stop, self._interval_seconds)
                Thread(target=_poll, args=given, name="resource polling", daemon=True).start()
        return partial(self._end_updates, end)

    def _end_updates(self, end: Callable[[], None]) -> None:
        with self._changing:
            end()
            if not self._watchers and self._stop is not None:
                self._stop.set()
                self._stop = None

    def _end_watch(self, uri: str) -> None:
        with self._changing:
            self._watched[uri].watchers -= 1
            if not self._watched[uri].watchers:
                del self._watched[uri]


def _poll(reference: ref[PollingResourceBox], stop: Event, interval_seconds: float) -> None:
    """Examine a box at intervals until it is stopped, or no longer exists."""
    while not stop.wait(interval_seconds):
        box = reference()
        if box is None:
            return
        try:
            box.poll()
        except Exception:
            _logger.exception("changes of %r cannot be found; the next attempt is in %g seconds", box, interval_seconds)
        del box  # it may be collected while this thread waits
