"""Tasks of servers that break the protocol, or fail for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import Response

from bridge.client import McpToolProvider, ReconnectPolicy
from bridge.errors import ServerAnswerError
from tests.client.endpoint import MODERN, Endpoint, error_of, result_of, running
from tests.client.http_client import sent_by

if TYPE_CHECKING:
    from bridge.types import Json

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

CREATED = {"resultType": "task", "taskId": "a/b:ü", "status": "working", "ttlMs": None, "pollIntervalMs": 10}
DONE = {"content": [{"type": "text", "text": "done"}]}
COMPLETED = {**CREATED, "resultType": "complete", "status": "completed", "result": DONE}
SENDERS = pytest.mark.parametrize("own", [True, False], ids=["own connections", "the HTTP client"])


class TaskEndpoint(Endpoint):
    """Serve a call that becomes a task, and answer requests for its state in turn; the last answer is repeated."""

    def __init__(self, *states: Json | tuple[int, Json | None], created: Json = CREATED) -> None:
        self.asked: list[Json] = []
        self._states = list(states)
        self._created = created
        super().__init__(MODERN, {"pay": self._pay, "tasks/get": self._get, "tasks/cancel": self._cancel})

    async def _pay(self, message: Json) -> Response:
        self.asked.append(message["params"])
        return result_of(message, self._created)

    async def _get(self, message: Json) -> Response:
        self.asked.append(message["params"])
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(state, dict):
            return result_of(message, state)
        status, error = state
        if error is None:
            return Response("overloaded", status_code=status)
        return error_of(message["id"], error["code"], error["message"], status=status)

    async def _cancel(self, message: Json) -> Response:
        return result_of(message, {"resultType": "complete"})


async def called(endpoint: TaskEndpoint, *, own: bool = True, **settings: Any) -> str:
    """Return the text of a call's result."""
    with running(endpoint):
        soon = ReconnectPolicy(first_delay_seconds=0.01, max_delay_seconds=0.02)
        async with McpToolProvider([sent_by(endpoint.config(**settings), own=own)], reconnect=soon) as provider:
            return (await provider.call("pay")).text


@SENDERS
async def test_each_request_declares_tasks_and_names_the_task(own: bool) -> None:
    endpoint = TaskEndpoint(COMPLETED)
    assert await called(endpoint, own=own) == "done"
    capabilities = [each["_meta"]["io.modelcontextprotocol/clientCapabilities"] for each in endpoint.asked]
    assert [each["extensions"] for each in capabilities] == [{"io.modelcontextprotocol/tasks": {}}] * 2
    assert endpoint.asked[1]["taskId"] == "a/b:ü"


@SENDERS
@pytest.mark.parametrize(
    "failure",
    [(503, None), (500, None), (429, {"code": -32005, "message": "slow down"}), (200, {"code": -32603, "message": ""})],
    ids=["503", "500", "429", "internal error"],
)
async def test_a_failure_for_a_while_does_not_end_the_call(failure: Any, *, own: bool) -> None:
    assert await called(TaskEndpoint(failure, failure, COMPLETED), own=own) == "done"


async def test_a_failure_for_too_long_ends_the_call() -> None:
    text = await called(TaskEndpoint((503, None)), timeout_seconds=0.2)
    assert "no answer within 0.2 seconds without progress; it was cancelled: the outcome is unknown" in text


@SENDERS
@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({}, "a task without an ID, or with an unknown status: None, None"),
        ({**CREATED, "status": "paused"}, "with an unknown status: 'a/b:ü', 'paused'"),
        ({**CREATED, "status": ["working"]}, "with an unknown status"),
        ({**CREATED, "status": "input_required"}, "requires input, and 'inputRequests' is not an object of objects"),
        ({**COMPLETED, "result": None}, "is completed, and 'result' is not an object"),
        ({**COMPLETED, "result": {}}, "a malformed result: a result without content"),
        ({**COMPLETED, "result": {**DONE, "resultType": "task"}}, "the result of a task is not complete, but 'task'"),
        ({**CREATED, "status": "failed"}, "is failed, and 'error' is not an object"),
        ({**CREATED, "status": "failed", "error": {}}, "None (-32603)"),
        ({**CREATED, "status": "cancelled"}, "the task was cancelled; it is the task 'a/b:ü': the outcome is unknown"),
        ((404, {"code": -32601, "message": "no such method"}), "no such method (-32601)"),
        ((400, {"code": -32602, "message": "no such task"}), "no such task (-32602)"),
    ],
)
async def test_a_state_that_cannot_be_used_is_a_clear_error(state: Any, problem: str, *, own: bool) -> None:
    text = await called(TaskEndpoint(state), own=own)
    assert problem in text


async def test_a_started_task_whose_state_cannot_be_read_is_a_clear_error() -> None:
    endpoint = TaskEndpoint({**CREATED, "status": "paused"})
    with running(endpoint):
        async with McpToolProvider([endpoint.config()]) as provider:
            task = await provider.start("pay")
            assert str(task) == "task:remote/pay/a%2Fb%3A%C3%BC"
            with pytest.raises(ServerAnswerError, match="with an unknown status: 'a/b:ü', 'paused'"):
                await task.status()
            assert provider.task(str(task)).id == "a/b:ü"


async def test_a_task_whose_outcome_cannot_be_read_is_cancelled() -> None:
    endpoint = TaskEndpoint({**CREATED, "status": "paused"})
    await called(endpoint)
    assert endpoint.seen[-1] == "tasks/cancel"


async def test_a_task_without_an_id_is_no_result() -> None:
    assert "malformed result" in await called(TaskEndpoint(COMPLETED, created={"resultType": "task"}))


async def test_odd_intervals_neither_spin_nor_hang() -> None:
    for odd in (-1, 0, None, "soon", True, 1e308):
        state = {**COMPLETED, "pollIntervalMs": odd}
        assert await called(TaskEndpoint(state, created={**CREATED, "createdAt": "yesterday"})) == "done"
