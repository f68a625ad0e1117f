"""Tasks: calls whose results are fetched later (MCP's extension ``io.modelcontextprotocol/tasks``, SEP-2663)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import DefinitionError
from bridge.tools.checks import require_seconds, require_type

if TYPE_CHECKING:
    from collections.abc import Mapping

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""State of a task; ``completed`` includes results that are errors of the tool."""
FINAL: frozenset[TaskStatus] = frozenset({"completed", "failed", "cancelled"})
"""States that do not change."""
MAX_SECONDS = 10 * 365 * 24 * 3600.0
"""Maximum of the times of tasks: ten years."""


def require_task_seconds(value: float | None, what: str, *, optional: bool = True) -> None:
    """Check a time of tasks; ``optional`` accepts None.

    Raises:
        DefinitionError: It is not a number above 0 and up to `MAX_SECONDS`.
    """
    require_seconds(value, what, optional=optional)
    if value is not None and value > MAX_SECONDS:
        raise DefinitionError(f"{what} must be at most {MAX_SECONDS:.0f} seconds, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """Settings of a tool whose calls are tasks for the clients that support tasks."""

    required: bool = False
    """Refuse clients that do not support tasks; otherwise they get the result directly."""
    starts_at_once: bool = True
    """False if a call starts as a request, whose questions come before the task, and becomes a task when the function
    calls `InvocationContext.start_task`."""
    ttl_seconds: float | None = None
    """Seconds after its creation for which a task is kept, and after which it is cancelled if it still runs; None for
    the server's setting."""
    poll_interval_seconds: float = 1.0
    """Seconds between two requests for the state, which the server suggests to its clients."""

    def __post_init__(self) -> None:
        require_type(self.required, bool, "required", "True or False")
        require_type(self.starts_at_once, bool, "starts_at_once", "True or False")
        require_task_seconds(self.ttl_seconds, "ttl_seconds")
        require_task_seconds(self.poll_interval_seconds, "poll_interval_seconds", optional=False)

    @classmethod
    def of(cls, given: bool | Literal["required"] | TaskPolicy) -> TaskPolicy | None:
        """Return the policy of a setting: True, ``required``, or a policy; None for False.

        Raises:
            DefinitionError: It is something else.
        """
        if isinstance(given, TaskPolicy):
            return given
        if given == "required":
            return cls(required=True)
        if isinstance(given, bool):
            return cls() if given else None
        raise DefinitionError(f"task must be True, False, 'required' or a TaskPolicy, not {given!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """State of a task at one time."""

    id: str
    """Secret identifier: a client that has it may read and cancel the task."""
    status: TaskStatus = "working"
    status_message: str | None = None
    """The last progress of the function, or the reason of the state; None for none."""
    created_at: float
    """Time of creation, in seconds since 1970."""
    updated_at: float
    """Time of the last change, in seconds since 1970."""
    ttl_seconds: float | None
    """Seconds after the creation for which it is kept; None for ever."""
    poll_interval_seconds: float
    """Seconds between two requests for the state."""
    questions: Mapping[str, Any] = field(default_factory=dict)
    """Open questions in MCP's JSON, by key; only with ``input_required``."""
    outcome: bytes = b""
    """JSON of the result if it is completed, of the JSON-RPC error if it has failed; otherwise empty."""

    @property
    def is_final(self) -> bool:
        """True if the state does not change any more."""
        return self.status in FINAL
