"""Conversion of tasks to MCP JSON (extension ``io.modelcontextprotocol/tasks``, SEP-2663)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.text import utc_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.task import Task
    from bridge.types import Json

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
"""Key of the extension in the capabilities of clients and servers."""
REQUIRED_CAPABILITIES: Json = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
"""Data of the error for a client that does not support tasks."""


def supports_tasks(capabilities: Mapping[str, Any]) -> bool:
    """Return True if a client has declared the extension."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS_EXTENSION), dict)


def created_task_to_wire(task: Task) -> Json:
    """Convert a task to the response to the call that created it (``CreateTaskResult``)."""
    return {"resultType": "task", **_base(task)}


def task_to_wire(task: Task) -> Json:
    """Convert a task to the result of ``tasks/get`` (``DetailedTask``)."""
    return {"resultType": "complete", **task_notification_to_wire(task)}


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
