"""Actions of operators on a running server."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.errors import BridgeError, DefinitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.server.http.app import BridgeApp
    from bridge.server.http.probes import HealthState
    from bridge.server.server import Server
    from bridge.telemetry.activity import Activity
    from bridge.types import Json

ACTIONS = {
    "cancel": "call",
    "cancel-task": "task",
    "restart": "server",
    "enable": "tool",
    "disable": "tool",
    "drain": None,
    "reload": None,
}
"""Names of the actions, and of what each needs; None for nothing."""


class Outcome(NamedTuple):
    """Outcome of an action in one process."""

    is_done: bool
    problem: str | None
    """The reason why it was not done; None if it was, or if this process has no such object."""

    def as_json(self) -> Json:
        """Return it as JSON, for the channel between workers."""
        return self._asdict()


DONE = Outcome(True, None)
_NOT_HERE = Outcome(False, None)


class AdminActions:
    """Does what operators want, in one process.

    Args:
        app: The application.
        server: The server.
        activity: The calls under way.
        operations: Reloads the configuration.
        restart: Restarts a server behind a gateway, by name; returns False if there is none of this name.
        drain_pid: Process that ends the server gracefully on SIGTERM.
    """

    def __init__(
        self,
        *,
        app: BridgeApp,
        server: Server,
        activity: Activity,
        operations: HealthState,
        restart: Callable[[str], Awaitable[bool]],
        drain_pid: int,
    ) -> None:
        self._app, self._server, self._activity = app, server, activity
        self._operations, self._restart, self._drain_pid = operations, restart, drain_pid

    async def act(self, action: str, target: str) -> Outcome:
        """Do one of `ACTIONS`."""
        match action:
            case "cancel":
                return self._cancel(target)
            case "cancel-task":
                return await self._cancel_task(target)
            case "restart":
                return DONE if await self._restart(target) else _NOT_HERE
            case "enable" | "disable":
                return self._switch(target, is_enabled=action == "enable")
            case "drain":
                os.kill(self._drain_pid, signal.SIGTERM)
                return DONE
            case "reload":
                return await self._reloaded()
        raise ValueError(f"there is no action {action!r}")

    def _cancel(self, call_id: str) -> Outcome:
        operation = self._activity.calls.get(call_id)
        if operation is None:
            return _NOT_HERE
        if operation.task is not None and self._server.running.cancel(operation.task):
            return DONE
        return Outcome(False, f"the call {call_id!r} cannot be cancelled now: it ends, or its function runs to its end")

    async def _cancel_task(self, beginning: str) -> Outcome:
        found = [
            (served.server.tasks, record.task.id)
            for served in self._app.served
            for record in served.server.tasks.running
            if record.task.id.startswith(beginning)
        ]
        if not found:
            return _NOT_HERE
        if len(found) > 1:
            return Outcome(False, f"{len(found)} tasks have ids that begin with {beginning!r}: give more of the id")
        [(tasks, task_id)] = found
        return DONE if await tasks.cancel_running(task_id) else _NOT_HERE

    def _switch(self, tool: str, *, is_enabled: bool) -> Outcome:
        box = self._server.features.tools
        try:
            box.enable(tool) if is_enabled else box.disable(tool)
        except DefinitionError:
            caller_features = self._server.features.caller_features
            if caller_features is None or not caller_features.may_be_more:
                return _NOT_HERE
            reason = "tools that are listed for single callers, with credentials of their own, cannot be disabled"
            return Outcome(False, f"no tool {tool!r} is listed for all callers: {reason}")
        return DONE

    async def _reloaded(self) -> Outcome:
        if self._operations.reload is None:
            return Outcome(False, "there is no configuration to reload: the server was not started with an mcp.json")
        try:
            await self._operations.reload()
        except BridgeError as error:
            return Outcome(False, f"the configuration is not used: {error}")
        return DONE


def joined(outcomes: list[Outcome], action: str, target: str) -> Outcome:
    """Return the outcome of an action in all processes: done if one has done it, and none has failed."""
    for outcome in outcomes:
        if outcome.problem is not None:
            return outcome
    if any(outcome.is_done for outcome in outcomes):
        return DONE
    return Outcome(False, f"there is no {ACTIONS[action]} {target!r}")


def checked(body: Any) -> tuple[str, str]:
    """Return the action and the target that a request names.

    Raises:
        ValueError: It names none, or needs a target.
    """
    action = body.get("action") if isinstance(body, dict) else None
    if action not in ACTIONS:
        raise ValueError(f"the action is one of {', '.join(ACTIONS)}, not {action!r}")
    noun = ACTIONS[action]
    target = "" if noun is None else body.get(noun)
    if not isinstance(target, str) or (noun is not None and not target):
        raise ValueError(f"the action {action!r} needs a {noun!r}, which is text")
    return action, target
