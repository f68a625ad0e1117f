"""The response to a call of a tool, for all outcomes of the tool."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.errors import ToolError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.session import Session
from bridge.server.auth.access import EVERYTHING
from bridge.server.channel import context_of
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.server.server import Server
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.function import tool
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.tool import ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from bridge.wire.received import SERVER_INFO_KEY
from tests.server.http_server import call, initialize, modern
from tests.server.tools import ADD, Waiting, silent

if TYPE_CHECKING:
    from tests.server.tools import Body

DEADLINE_SECONDS = 60
SECRET = "the password is swordfish"
IMPLEMENTATION = {"name": "tests", "version": "1"}
FAILED = "the request for 'gives' failed; the server's log says why"

pytestmark = pytest.mark.anyio


def dispatched(*tools: Any, **options: Any) -> tuple[Dispatch, ToolBox]:
    toolbox = ToolBox(*tools)
    return Dispatch(Server(toolbox, name="tests", version="1", **options)), toolbox


def exchange_of(dispatch: Dispatch, name: str, *, is_modern: bool = True) -> ServedExchange:
    message, origin = call(name, {"a": 1, "b": 2}) | {"id": 7}, LocalOrigin(EVERYTHING)
    if is_modern:
        found = dispatch.modern(modern(message), origin)
    else:
        session = Session()
        session.initialize(initialize()["params"])
        found = dispatch.handshake(message, session, origin, session.version)
    assert isinstance(found, ServedExchange)
    return found


async def ran(body: Body, *, is_modern: bool = True, **options: Any) -> tuple[dict[str, Any], int]:
    """Return the response of a tool with this body, under its ID, and the error code."""
    dispatch, _ = dispatched(silent("gives", body), **options)
    exchange = exchange_of(dispatch, "gives", is_modern=is_modern)
    raw, code = await exchange.responder.run(exchange)
    whole = json.loads(raw)
    assert (whole.pop("jsonrpc"), whole.pop("id")) == ("2.0", 7)
    return whole, code


def giving(value: Any) -> Body:
    async def give(*_: object) -> Any:
        return value

    return give


def raising(error: BaseException) -> Body:
    async def fail(*_: object) -> Any:
        raise error

    return fail


async def test_a_result_of_the_modern_era_says_that_it_is_complete_and_who_made_it() -> None:
    content = {"content": [{"type": "text", "text": "3"}], "isError": False}
    stamp = {"_meta": {SERVER_INFO_KEY: IMPLEMENTATION}}
    assert await ran(giving(3)) == ({"result": content | {"resultType": "complete"} | stamp}, 0)
    assert await ran(giving(3), is_modern=False) == ({"result": content}, 0)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"x": 1}, {"x": 1, SERVER_INFO_KEY: IMPLEMENTATION}),
        ({SERVER_INFO_KEY: None}, {SERVER_INFO_KEY: IMPLEMENTATION}),
        ({SERVER_INFO_KEY: {"name": "mine", "version": ""}}, {SERVER_INFO_KEY: {"name": "mine", "version": ""}}),
    ],
    ids=["other metadata", "null", "its own"],
)
async def test_what_an_author_says_of_the_server_stands(given: dict[str, Any], sent: dict[str, Any]) -> None:
    whole, _ = await ran(giving(ToolExecutionResult((), metadata=given)))
    assert whole["result"]["_meta"] == sent
    whole, _ = await ran(giving(ToolExecutionResult((), metadata=given)), is_modern=False)
    assert whole["result"]["_meta"] == given


async def test_numbers_that_are_not_finite_are_null() -> None:
    whole, _ = await ran(giving(ToolExecutionResult((), {"x": [float("nan"), float("-inf")]})))
    assert whole["result"]["structuredContent"] == {"x": [None, None]}


async def test_structured_content_that_is_no_object_is_for_the_modern_era_only() -> None:
    result = ToolExecutionResult((), [1])
    assert (await ran(giving(result)))[0]["result"]["structuredContent"] == [1]
    assert "structuredContent" not in (await ran(giving(result), is_modern=False))[0]["result"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (raising(ToolError("no")), "no"),
        (raising(ValueError(SECRET)), "the tool 'gives' failed; its server's log says why"),
        (raising(SystemExit(SECRET)), "the tool tried to end the process"),
        (giving(ToolExecutionResult((), {"x": object()})), "the tool 'gives' failed; its server's log says why"),
    ],
    ids=["on purpose", "by mistake", "an exit", "what cannot be written"],
)
async def test_a_tool_that_fails_gives_a_result(body: Body, told: str) -> None:
    for is_modern in (True, False):
        whole, code = await ran(body, is_modern=is_modern)
        assert (whole["result"]["content"], whole["result"]["isError"]) == ([{"type": "text", "text": told}], True)
        assert code == 0


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            raising(CallRefused(ProtocolError(-32021, "x", {"y": 1}))),
            {"code": -32021, "message": "x", "data": {"y": 1}},
        ),
        (raising(CallRefused(ProtocolError(-32602, "x"))), {"code": -32602, "message": "x"}),
        (
            raising(InputRequired({"q": Elicitation("?", {})})),
            {
                "code": -32021,
                "message": "this call needs a client with the capability elicitation.form",
                "data": {"requiredCapabilities": {"elicitation": {"form": {}}}},
            },
        ),
        (giving(5), None),
    ],
    ids=["with data", "without", "a question that the client cannot be asked", "none"],
)
async def test_an_error_of_the_protocol_is_answered_with_its_code(body: Body, error: dict[str, Any] | None) -> None:
    whole, code = await ran(body)
    assert whole.get("error") == error
    assert code == (0 if error is None else error["code"])


async def test_an_exception_that_is_to_propagate_is_told_in_general_words() -> None:
    whole, code = await ran(raising(ValueError(SECRET)), policy=ExecutionPolicy(propagate=True))
    assert (whole, code) == ({"error": {"code": -32603, "message": FAILED}}, -32603)


async def test_a_question_of_another_round_is_an_error_where_there_are_no_rounds() -> None:
    whole, code = await ran(raising(InputRequired({"q": Elicitation("?", {})})), is_modern=False)
    assert whole["error"] == {"code": code, "message": "'gives' cannot be used by this client"}
    assert code == -32603


async def test_a_tool_that_goes_between_plan_and_run_is_unknown() -> None:
    dispatch, toolbox = dispatched(replace(ADD, interactive=False))
    exchange = exchange_of(dispatch, "add")
    toolbox.remove("add")
    raw, code = await exchange.responder.run(exchange)
    assert code == json.loads(raw)["error"]["code"] == -32602


async def test_only_a_cancellation_leaves_a_run() -> None:
    waiting = Waiting()
    dispatch, _ = dispatched(replace(waiting.tool, interactive=False))
    exchange = exchange_of(dispatch, "wait")
    context = context_of(exchange)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.responder.run, exchange)
            await waiting.started.wait()
            tasks.cancel_scope.cancel()
    assert waiting.cancelled.is_set()
    assert context.cancelled


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_function_gives_the_same_answer_started_or_run(is_modern: bool) -> None:
    @tool
    async def gives(a: int, b: int, fails: bool = False) -> dict[str, int]:
        """Give."""
        if fails:
            raise ToolError("no")
        return {"sum": a + b}

    dispatch, _ = dispatched(gives)

    def step(work: Any) -> Any:
        work.send(None)
        raise AssertionError("it does not wait")

    for fails in (False, True):
        answers = []
        for is_started in (True, False):
            exchange = exchange_of(dispatch, "gives", is_modern=is_modern)
            exchange.arguments = {**exchange.arguments, "fails": fails}
            answer = exchange.responder.start(exchange, step) if is_started else None
            assert (answer is not None) == (is_started and not fails)
            answers.append(json.loads(answer or (await exchange.responder.run(exchange))[0]))
        assert answers[0] == answers[1]
        assert answers[0]["result"].get("isError", False) is fails
