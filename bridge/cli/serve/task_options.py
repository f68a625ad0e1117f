"""Task options of ``bridge serve``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import Number, count_setting, setting
from bridge.server.tasks import options as defaults
from bridge.server.tasks.options import TaskOptions
from bridge.tools.task import MAX_SECONDS

if TYPE_CHECKING:
    from bridge.cli.serve.deployment_options import ScalingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskServeOptions:
    """Options of tasks."""

    task_store: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="SQLite file that keeps tasks and events after the process has ended; created if it does not exist. By "
        "default, they are kept in memory.",
    )
    task_after: float | None = setting(
        type=Number(0.001, MAX_SECONDS),
        metavar="SECONDS",
        help="Time after which a running call, also of a tool of another server, becomes a task, if its client "
        "supports tasks.",
    )
    task_ttl: float = setting(
        type=Number(0.001, MAX_SECONDS),
        metavar="SECONDS",
        default=defaults.DEFAULT_TTL_SECONDS,
        help="Time after its creation for which a task is kept, unless its tool sets one; it is cancelled if it still "
        "runs then.",
    )
    max_tasks: int = count_setting(
        "TASKS",
        "Maximum running tasks of all callers; 0 to answer every call directly. Further ones are answered by an "
        "error that says when to try again.",
        least=0,
        default=defaults.DEFAULT_MAX_TASKS,
    )
    max_task_bytes: int = count_setting(
        "BYTES",
        "Maximum bytes of all kept tasks: their results, and 1 KiB for each.",
        default=defaults.DEFAULT_MAX_BYTES,
    )
    max_running_tasks: int = count_setting(
        "TASKS",
        "With --redis-url: running tasks up to which each process takes on waiting ones; 0 leaves them to bridge "
        "worker.",
        least=0,
        default=defaults.DEFAULT_MAX_RUNNING,
    )

    def check(self, ctx: click.Context, *, is_shared: bool, reload: bool) -> None:
        """Check that the store is used by one process."""
        if self.task_store is not None and (is_shared or reload):
            raise click.UsageError(
                "--task-store needs a single process: leave --workers, --redis-url and --reload out, or leave it out",
                ctx,
            )

    def reach_store(self) -> None:
        """Check that the store can be used.

        Raises:
            TaskStoreError: It cannot be opened, or another process uses it.
        """
        if self.task_store is not None:
            from bridge.server.tasks.sqlite_store import SqliteTaskStore  # noqa: PLC0415 - imports SQLite

            SqliteTaskStore(self.task_store).check()

    def options(self, scaling: ScalingOptions | None = None) -> TaskOptions:
        """Build the options; no tasks for several processes without a Redis.

        Args:
            scaling: The processes of the server; None for one.
        """
        store: RedisTaskStore | SqliteTaskStore | None = None
        if scaling is not None and scaling.redis_url is not None:
            from bridge.server.tasks.shared.redis_store import RedisTaskStore  # noqa: PLC0415 - only with Redis

            store = RedisTaskStore(scaling.redis_url)
        elif self.task_store is not None:
            from bridge.server.tasks.sqlite_store import SqliteTaskStore  # noqa: PLC0415 - imports SQLite

            store = SqliteTaskStore(self.task_store)
        return TaskOptions(
            after_seconds=self.task_after,
            ttl_seconds=self.task_ttl,
            max_tasks=0 if scaling is not None and scaling.are_sessions_lost else self.max_tasks,
            max_bytes=self.max_task_bytes,
            store=store,
            max_running=self.max_running_tasks,
        )
