"""SessionUsage of a session, by which a server that nothing needs is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.wire.tasks import is_created_task

if TYPE_CHECKING:
    from bridge.types import Json


class SessionUsage:
    """Responses of a session that are not of calls, and its tasks.

    Attributes:
        upkeep: Number of responses to health checks and lists.
        notes_tasks: True to note tasks.
        has_tasks: True if the server has made a task, which may go on after the call has been answered.
        streams: Number of streams of events that are open.
    """

    __slots__ = ("has_tasks", "notes_tasks", "streams", "upkeep")

    def __init__(self) -> None:
        self.upkeep = self.streams = 0
        self.notes_tasks = self.has_tasks = False

    def note(self, result: Json | None) -> None:
        """Note if a result is a task."""
        if result is not None and is_created_task(result):
            self.has_tasks = True
