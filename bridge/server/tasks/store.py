"""Stores of tasks: the interface, and the store in the process.

A store keeps records. The process that runs a task knows its state; it saves the record when the task is created, when
its questions are answered, and when it ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import from_json, to_json

from bridge.errors import BridgeError
from bridge.tools.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OVERHEAD_BYTES = 1024
"""Bytes that a task counts beside its texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task as it is stored."""

    task: Task
    owner: str
    """Name of the authenticated caller who created it; empty without authentication."""
    account: str
    """The caller in limits; empty if there can be only one."""
    tool: str
    """Name of the called tool."""
    request: bytes = b""
    """JSON of what another process needs to run it again; empty if it must not be run again."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Answers to its questions in MCP's JSON, by key."""
    runs: int = 1
    """Number of times that it was started."""
    team: str = ""
    """Team of the caller who created it; empty for none."""

    @property
    def stored_bytes(self) -> int:
        """Number of bytes that it counts."""
        return OVERHEAD_BYTES + len(self.request) + len(self.task.outcome)

    @property
    def expires_at(self) -> float | None:
        """Time at which it is deleted, in seconds since 1970; None for never."""
        ttl_seconds = self.task.ttl_seconds
        return None if ttl_seconds is None else self.task.created_at + ttl_seconds

    def changed(self, **changes: Any) -> TaskRecord:
        """Return a copy with changed attributes of the task."""
        return replace(self, task=replace(self.task, **changes))


def record_to_json(record: TaskRecord) -> bytes:
    """Return a record as JSON, without its request and its outcome."""
    task = record.task
    return to_json(
        {
            "id": task.id,
            "status": task.status,
            "status_message": task.status_message,
            "created_at": task.created_at,
            "updated_at": task.updated_at,
            "ttl_seconds": task.ttl_seconds,
            "poll_interval_seconds": task.poll_interval_seconds,
            "questions": dict(task.questions),
            "owner": record.owner,
            "account": record.account,
            "tool": record.tool,
            "answers": record.answers,
            "runs": record.runs,
            "team": record.team,
        }
    )


def record_from_json(state: str | bytes, request: bytes, outcome: bytes) -> TaskRecord:
    """Return a record that `record_to_json` has written.

    Raises:
        ValueError: It is malformed.
    """
    try:
        fields = from_json(state)
        of_record = {name: fields.pop(name) for name in ("owner", "account", "tool", "answers", "runs")}
        team = fields.pop("team", "")  # which earlier versions did not store
        return TaskRecord(task=Task(**fields, outcome=outcome), request=request, team=team, **of_record)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(repr(error)) from error


class TaskStoreError(BridgeError):
    """A store cannot be read or written; the message says why."""


class TaskStore(Protocol):
    """Keeps tasks by their ids."""

    is_durable: bool
    """True if tasks outlive the process."""
    is_shared: bool
    """True if several processes use it at a time; see `bridge.server.tasks.shared`."""

    async def open(self) -> Sequence[TaskRecord]:
        """Open the store; return the tasks of earlier processes.

        Raises:
            TaskStoreError: It cannot be opened, or another process uses it.
        """
        ...

    async def save(self, record: TaskRecord) -> None:
        """Add a task, or replace it; it can be found when this returns.

        Raises:
            TaskStoreError: It cannot be stored; the record before stays.
        """
        ...

    async def find(self, task_id: str) -> TaskRecord | None:
        """Return a task; None if there is no such task.

        Raises:
            TaskStoreError: The store cannot be read.
        """
        ...

    async def delete(self, task_id: str) -> None:
        """Delete a task, if it exists.

        Raises:
            TaskStoreError: It cannot be deleted.
        """
        ...

    async def close(self) -> None:
        """Close the store; it may be opened again."""
        ...


class MemoryTaskStore:
    """Keeps tasks in this process."""

    is_durable = False
    is_shared = False

    def __init__(self) -> None:
        self._records: dict[str, TaskRecord] = {}

    async def open(self) -> Sequence[TaskRecord]:
        """Return no tasks."""
        return ()

    async def save(self, record: TaskRecord) -> None:
        """Add a task, or replace it."""
        self._records[record.task.id] = record

    async def find(self, task_id: str) -> TaskRecord | None:
        """Return a task; None if there is no such task."""
        return self._records.get(task_id)

    async def delete(self, task_id: str) -> None:
        """Delete a task, if it exists."""
        self._records.pop(task_id, None)

    async def close(self) -> None:
        """Delete all tasks."""
        self._records.clear()
