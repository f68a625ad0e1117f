"""Options of tasks: how long they are kept, how many, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.tools.annotated_checks import check_fields
from bridge.tools.task import require_task_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.store import TaskStore
    from bridge.tools.tool import Tool

DEFAULT_TTL_SECONDS = 3600.0
"""Default time for which a task is kept."""
DEFAULT_MAX_TASKS = 10_000
"""Default maximum of tasks that have not ended."""
DEFAULT_MAX_RUNNING = 100
"""Default maximum of running tasks up to which a process takes on tasks that wait on Redis."""
DEFAULT_MAX_BYTES = 256 * 1024 * 1024
"""Default maximum of stored bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Options for the tasks of one server.

    Callers share the maxima: a caller may take as much as stays free, so that a single one gets half.
    """

    ttl_seconds: float | None = DEFAULT_TTL_SECONDS
    """Seconds after its creation for which a task is kept, unless its tool has a setting; it is cancelled if it still
    runs then. None for ever."""
    after_seconds: float | None = None
    """Seconds after which a running call of any tool, also of another server, becomes a task; None for never."""
    max_tasks: int = DEFAULT_MAX_TASKS
    """Maximum of tasks that have not ended; 0 to answer all calls directly."""
    max_bytes: int = DEFAULT_MAX_BYTES
    """Maximum of stored bytes: results, and about 1 KiB for each task that is kept."""
    store: TaskStore | RedisTaskStore | None = None
    """Keeps the tasks; None for this process's memory."""
    max_running: int = DEFAULT_MAX_RUNNING
    """With a `RedisTaskStore`: tasks up to which this process takes on waiting ones; 0 leaves them to others, such as
    ``bridge worker``."""

    def __post_init__(self) -> None:
        require_task_seconds(self.ttl_seconds, "ttl_seconds")
        require_task_seconds(self.after_seconds, "after_seconds")
        check_fields(self, may_be_zero=("max_tasks", "max_running"))

    @property
    def is_shared(self) -> bool:
        """True if other processes run these tasks, too."""
        return self.store is not None and self.store.is_shared and bool(self.max_tasks)

    def apply_to(self, tools: Iterable[Tool]) -> bool:
        """Return True if a call of one of these tools can become a task, or tasks of earlier processes are kept."""
        if not self.max_tasks:
            return False
        is_kept = self.store is not None and self.store.is_durable and not self.store.is_shared
        return is_kept or self.after_seconds is not None or any(tool.task is not None for tool in tools)
