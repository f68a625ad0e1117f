"""Conversion of tasks to MCP JSON and back (extension ``io.modelcontextprotocol/tasks``, SEP-2663)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from pydantic_core import from_json, to_json

from bridge.errors import WireError
from bridge.text import short_repr, utc_time
from bridge.tools.task import Task, TaskStatus
from bridge.wire.extension import TASKS
from bridge.wire.received import Received

if TYPE_CHECKING:
    from bridge.types import Json

TASK_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Methods of one task, whose ID is a parameter and the header ``Mcp-Name``."""

_STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
_OUTCOMES = {"completed": "result", "failed": "error"}
_POLL_SECONDS = (0.01, 60.0)


def supports_tasks(capabilities: Any) -> bool:
    """Return True if a client has declared the extension; a value that is not an object declares nothing."""
    return TASKS.declared_in(capabilities) is not None


def created_task_to_wire(task: Task) -> Json:
    """Convert a task to the response to the call that created it (``CreateTaskResult``)."""
    return {"resultType": "task", **_base(task)}


def without_tasks(capabilities: Any) -> Mapping[str, Any]:
    """Return the capabilities of a client of the handshake era, in which there are no tasks, even if it declares them.

    The extension is part of the 2026-07-28 revision.
    """
    if not supports_tasks(capabilities):
        return capabilities if isinstance(capabilities, Mapping) else {}
    others = {key: value for key, value in capabilities["extensions"].items() if key != TASKS.id}
    return {**capabilities, "extensions": others}


def is_created_task(result: Mapping[str, Any]) -> bool:
    """Return True if the result of a call is a task."""
    return result.get("resultType") == "task" and isinstance(result.get("taskId"), str)


def task_from_wire(wire: Mapping[str, Any]) -> Task:
    """Convert a ``CreateTaskResult``, or a ``DetailedTask``, to a task.

    The interval of polling is kept between 10 milliseconds and a minute; times that cannot be read are the current one.

    Raises:
        WireError: The ID or the state is missing, or what the state comes with.
    """
    task_id, status, message = wire.get("taskId"), wire.get("status"), wire.get("statusMessage")
    if not (isinstance(task_id, str) and task_id and status in _STATUSES):
        raise WireError(f"a task without an ID, or with an unknown status: {short_repr(task_id)}, {short_repr(status)}")
    questions = wire.get("inputRequests") if status == "input_required" else {}
    if not (isinstance(questions, dict) and all(isinstance(each, dict) for each in questions.values())):
        raise WireError(f"the task {task_id!r} requires input, and 'inputRequests' is not an object of objects")
    outcome = b""
    if (member := _OUTCOMES.get(status)) is not None:
        if not isinstance(wire.get(member), dict):
            raise WireError(f"the task {task_id!r} is {status}, and {member!r} is not an object")
        outcome = to_json(wire[member], inf_nan_mode="null")
    ttl, interval = wire.get("ttlMs"), wire.get("pollIntervalMs")
    least, most = _POLL_SECONDS
    return Task(
        id=task_id,
        status=status,
        status_message=message if isinstance(message, str) else None,
        created_at=_time(wire.get("createdAt")),
        updated_at=_time(wire.get("lastUpdatedAt")),
        ttl_seconds=ttl / 1000 if _is_number(ttl) else None,
        poll_interval_seconds=min(max(interval / 1000, least), most) if _is_number(interval) else 1.0,
        questions=questions,
        outcome=outcome,
    )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15  # noqa: PLR2004 - of a date


def _time(value: Any) -> float:
    try:
        return datetime.fromisoformat(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return time()


def task_to_wire(task: Task) -> Json:
    """Convert a task to the result of ``tasks/get`` (``DetailedTask``)."""
    return {"resultType": "complete", **task_notification_to_wire(task)}


def written_task(task: Task) -> Received:
    """Return the text of a task as the result of ``tasks/get``, without reading its outcome."""
    text = to_json(_base(task) | ({"inputRequests": task.questions} if task.status == "input_required" else {}))[:-1]
    if (member := _OUTCOMES.get(task.status)) is not None:
        text = b'%b,"%b":%b' % (text, member.encode(), task.outcome)
    return Received.of({}, text)


def task_notification_to_wire(task: Task) -> Json:
    """Convert a task to the parameters of ``notifications/tasks``."""
    wire = _base(task)
    if task.status == "input_required":
        wire["inputRequests"] = dict(task.questions)
    elif task.status == "completed":
        wire["result"] = from_json(task.outcome)
    elif task.status == "failed":
        wire["error"] = from_json(task.outcome)
    return wire


def _base(task: Task) -> Json:
    wire: Json = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": utc_time(task.created_at),
        "lastUpdatedAt": utc_time(task.updated_at),
        "ttlMs": None if task.ttl_seconds is None else _milliseconds(task.ttl_seconds),
        "pollIntervalMs": _milliseconds(task.poll_interval_seconds),
    }
    return wire if task.status_message is None else wire | {"statusMessage": task.status_message}


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
