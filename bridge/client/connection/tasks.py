"""A task that a server has made of a call: waiting for its end, questions, progress, cancellation.

tasks/get ──> working ──────────> notification, or the interval that the server suggests ──> tasks/get
    │   ╰───> input_required ──> handlers ──> tasks/update ──────────────────────────────> tasks/get
    │   ╰───> completed, failed, cancelled ──> result, or error
    ╰──> no answer, an overload, a restart ──> tasks/get, until the limits of the call

Each answer of the server restarts the limit without progress; the total limit and the caller's deadline remain. MCP's
extension ``io.modelcontextprotocol/tasks`` (SEP-2663).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import from_json

from bridge.client.connection.handlers import QuestionRefusedError, answer_question
from bridge.client.connection.retries import Sending
from bridge.errors import (
    OutcomeUnknownError,
    ServerAuthError,
    ServerError,
    ServerRefusedError,
    ServerUnavailableError,
    WireError,
)
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY
from bridge.text import short_repr
from bridge.wire.tasks import task_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.connection.running_call import Call
    from bridge.client.connection.session import Session
    from bridge.client.connection.supervisor import Supervisor
    from bridge.client.connection.task_notifications import TaskNotifications
    from bridge.protocol.peer import PendingRequest
    from bridge.tools.task import Task
    from bridge.types import Json

CANCEL_SECONDS = 2.0
"""Maximum seconds that cancelling a task may take."""

ANNOUNCED_POLL_SECONDS = 30.0
"""Seconds between polls of a task whose changes the server announces."""

_PERMANENT = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY})
"""Codes of errors that another request would get, too; others may be those of an overload or a restart."""


class AwaitedTask:
    """A task, while a call waits for it.

    Args:
        supervisor: The connection to its server.
        task_id: Its ID.
        call: The call that waits; its limits hold.
        meta: ``_meta`` of the requests; None for none.
        phase: Operation in progress, for errors.
    """

    def __init__(
        self, supervisor: Supervisor, task_id: str, call: Call, meta: Mapping[str, Any] | None, phase: str
    ) -> None:
        self._supervisor = supervisor
        self._id = task_id
        self._call = call
        self._meta = meta
        self._phase = phase
        self._answered: set[str] = set()
        self._shown: str | None = None
        self._shown_count = 0
        self._poll_seconds = 1.0
        self._notifications: TaskNotifications | None = None
        self._is_over = False

    async def finished(self, created: Json) -> Json:
        """Return the result of a task that was just created; cancel the task if the call ends before it does.

        Raises:
            ServerError: As by `result`.
        """
        try:
            return await self.result(created)
        except BaseException:
            if not self._is_over:
                with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                    await self._cancel()
            raise

    async def result(self, wire: Json | None = None) -> Json:
        """Wait for the end of the task; return its ``CallToolResult``.

        Args:
            wire: Its state, if it is known.

        Raises:
            ServerError: The task has failed or was cancelled, or its outcome cannot be found out.
        """
        task = await self._state() if wire is None else self._read(wire)
        try:
            while not task.is_final:
                await self._report(task)
                if questions := {key: each for key, each in task.questions.items() if key not in self._answered}:
                    await self._answer(questions)
                await self._changed()
                task = await self._state()
        finally:
            self._follow(None)
        self._is_over = True
        return self._outcome(task)

    async def _changed(self) -> None:
        """Wait until the state may have changed."""
        is_announced = self._supervisor.ready_session is not None and not self._meta  # a subscription is for all calls
        self._follow(self._supervisor.task_notifications if is_announced else None)
        if self._notifications is None:
            await anyio.sleep(self._poll_seconds)
        else:
            most_seconds = min(ANNOUNCED_POLL_SECONDS, self._call.idle_seconds / 2)
            await self._notifications.changed(self._id, self._poll_seconds, most_seconds)

    def _follow(self, notifications: TaskNotifications | None) -> None:
        if self._notifications is not None and self._notifications is not notifications:
            self._notifications.leave(self._id)
        self._notifications = notifications

    async def _state(self) -> Task:
        return self._read(await self._insist("tasks/get", {}))

    def _read(self, wire: Json) -> Task:
        try:
            task = task_from_wire(wire)
        except WireError as error:
            raise self._supervisor.failures.unreadable(self._phase, error) from error
        self._poll_seconds = task.poll_interval_seconds
        self._call.touch()
        return task

    async def _insist(self, method: str, params: Json) -> Json:
        """Send a request until the server answers it, or the limits of the call are reached.

        Raises:
            OutcomeUnknownError: The server does not know the task, or wants other credentials.
            ServerAnswerError: The response violates the protocol.
        """
        while True:
            try:
                return await self._send(method, params)
            except ServerRefusedError as error:
                if error.code in _PERMANENT:
                    self._is_over = method == "tasks/get"
                    raise self._lost(f"{method}: {error.failure.reason}") from error
            except ServerAuthError as error:
                raise self._lost(error.failure.reason) from error
            except (ServerUnavailableError, OutcomeUnknownError) as error:
                if error.failure.is_permanent or self._supervisor.is_stopping:
                    raise self._lost(error.failure.reason) from error
            await anyio.sleep(self._poll_seconds)

    async def _send(self, method: str, params: Json) -> Json:
        given: Json = {"taskId": self._id, **params}
        if self._meta:
            given["_meta"] = dict(self._meta)

        async def ask(session: Session, request: PendingRequest) -> Json:
            return await session.request(method, given, request)

        sending = Sending(self._supervisor, self._phase, is_repeatable=True)
        return await sending.through(self._call, ask)

    def _lost(self, reason: str) -> OutcomeUnknownError:
        return self._supervisor.failures.task_lost(self._phase, f"{reason}; it is the task {self._id!r}")

    async def _report(self, task: Task) -> None:
        """Report a new status message as progress."""
        if task.status_message is not None and task.status_message != self._shown:
            self._shown = task.status_message
            self._shown_count += 1
            self._call.on_progress(self._shown_count, None, task.status_message)
            await self._call.flush()

    async def _answer(self, questions: Mapping[str, Any]) -> None:
        handlers, context = self._supervisor.handlers, self._call.context
        try:
            with self._call.asking():
                answers = {key: await answer_question(handlers, each, context) for key, each in questions.items()}
        except QuestionRefusedError as error:
            problem = WireError(f"it requests input that cannot be provided: {error}")
            raise self._supervisor.failures.unreadable(f"{self._phase}, {', '.join(questions)}", problem) from error
        await self._insist("tasks/update", {"inputResponses": answers})
        self._answered.update(answers)

    async def _cancel(self) -> None:
        with suppress(ServerError):  # the call has ended anyway
            await self._send("tasks/cancel", {})

    def _outcome(self, task: Task) -> Json:
        failures = self._supervisor.failures
        if task.status == "cancelled":
            raise self._lost("the task was cancelled")
        outcome: Json = from_json(task.outcome)
        if task.status == "failed":
            code, message = outcome.get("code"), outcome.get("message")
            error = ProtocolError(code if isinstance(code, int) else INTERNAL_ERROR, str(message), outcome.get("data"))
            raise failures.refused(self._phase, error, None)
        result = {"resultType": "complete", **outcome}
        if result["resultType"] != "complete":
            problem = WireError(f"the result of a task is not complete, but {short_repr(result['resultType'])}")
            raise failures.unreadable(self._phase, problem)
        return result
