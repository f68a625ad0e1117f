"""Callers, questions and limits of functions that are called without a task."""
# ruff: noqa: F811 - parameters are the imported fixtures

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

import anyio
import httpx
import pytest

from bridge.errors import ToolError
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.auth.identity import caller_of_request
from bridge.server.limits import Limits
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.toolbox import ToolBox
from tests.cli.bounding import answers, connected
from tests.hosting.http.test_calls import DEADLINE_SECONDS, Held, held, memory, one, steps  # noqa: F401 - fixtures
from tests.server import http_server
from tests.server.http_mutations import Sessions, handshake, modern
from tests.server.http_server import call, events, open_session, whole_client
from tests.server.tools import NAME_FORM


@tool
async def who(*, waits: bool) -> str:
    """Return the caller of the current request, before and after a wait."""
    caller = caller_of_request()
    if waits:
        await asyncio.sleep(0)
    assert caller is not None
    assert caller == caller_of_request()
    return caller.name


@tool
async def who_in_context(context: InvocationContext, *, waits: bool) -> str:
    """Return the caller like the other."""
    assert context.caller is not None
    assert context.caller.name == await who(waits=waits)
    return context.caller.name


@pytest.mark.parametrize("name", ["who", "who_in_context"])
def test_calls_with_a_key_start_at_once_each_as_its_caller(name: str, steps: list[str]) -> None:
    keys = {"one": "1" * 40, "two": "2" * 40}
    app = http_app(ToolBox(who, who_in_context), auth=ApiKeys(*(ApiKey(*each) for each in keys.items())))
    order = ["one", "one", "one", "one", "two", "two", "two", "two", "one", "two"]
    found = []
    with http_server.serving(app, http="direct") as origin, whole_client() as client:
        for number, caller in enumerate(order):
            sent = http_server.modern(call(name, {"waits": number % 2 == 1}))
            headers = http_server.modern_headers(sent) | {"authorization": f"Bearer {keys[caller]}"}
            response = client.post(origin + "/mcp", json=sent, headers=headers)
            found.append(http_server.answer(response)["result"]["content"][0]["text"])
    assert found == order
    assert steps.count("_run_in_context") > 2


@tool
async def ask(context: InvocationContext, *, is_raised: bool) -> str:
    """Ask in the first step."""
    question = Elicitation("Who are you?", NAME_FORM)
    if is_raised:
        raise InputRequired({"name": question})
    return str((await context.ask({"name": question}))["name"])


@pytest.mark.parametrize("is_raised", [True, False])
def test_a_question_in_the_first_step_of_a_function_ends_the_call_in_the_modern_era(
    steps: list[str], *, is_raised: bool
) -> None:
    asking = http_server.modern(call("ask", {"is_raised": is_raised}), {"elicitation": {}})
    with http_server.serving(http_app(ToolBox(one, ask)), http="direct") as origin, whole_client() as client:
        for message in (http_server.modern(call("one")), asking):
            answered = client.post(origin + "/mcp", json=message, headers=http_server.modern_headers(message))
    result = http_server.answer(answered)["result"]
    assert result["resultType"] == "input_required"
    assert result["inputRequests"]["name"]["params"]["message"] == "Who are you?"
    assert steps[0] == "ask"


def test_a_question_in_the_first_step_of_a_function_is_asked_in_a_session(steps: list[str]) -> None:
    message = call("ask", {"is_raised": False})
    with http_server.serving(http_app(ToolBox(one, ask)), http="direct") as origin, whole_client() as client:
        headers = open_session(client, origin + "/mcp", {"elicitation": {}})
        client.post(origin + "/mcp", json=call("one"), headers=headers).raise_for_status()
        with client.stream("POST", origin + "/mcp", json=message, headers=headers) as response:
            said = events(response.iter_lines())
            declined = {"jsonrpc": "2.0", "id": next(said)["id"], "result": {"action": "decline"}}
            client.post(origin + "/mcp", json=declined, headers=headers).raise_for_status()
            (text,) = next(said)["result"]["content"]
    assert "decline" in text["text"]
    assert steps[0] == "ask"


def test_a_program_may_choose_the_memory_id_of_a_call_with_a_context() -> None:
    server = Server(ToolBox(one, memory), name="chosen", memory_id_of=lambda context: f"of {context.account}")
    app = http_app(server)
    with http_server.serving(app, http="direct") as origin, whole_client() as client:
        for message in (call("one"), call("memory")):
            sent = http_server.modern(message)
            response = client.post(origin + "/mcp", json=sent, headers=http_server.modern_headers(sent))
    assert http_server.answer(response)["result"]["content"][0]["text"] == "of 127.0.0.1"


def test_what_a_call_says_after_it_has_ended_at_once_reaches_nobody(steps: list[str]) -> None:
    contexts: list[InvocationContext] = []

    @tool
    async def leave(context: InvocationContext) -> str:
        """Return at once."""
        contexts.append(context)
        return "left"

    with (
        http_server.serving(http_app(ToolBox(one, leave)), http="direct") as origin,
        whole_client() as client,
    ):
        for message in (call("one"), call("leave", _meta={"progressToken": "p"})):
            sent = http_server.modern(message)
            response = client.post(origin + "/mcp", json=sent, headers=http_server.modern_headers(sent))
            assert response.headers["content-type"] == "application/json"

    async def say_more() -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await contexts[0].progress(1)
            await contexts[0].roots()

    with pytest.raises(ToolError, match="has ended"):
        anyio.run(say_more)
    assert "leave" in steps


@pytest.mark.parametrize("with_context", [True, False])
def test_a_waiting_function_is_cancelled_when_its_client_goes_and_goes_on_in_a_session(
    held: Held, steps: list[str], *, with_context: bool
) -> None:
    function = held.tool_with_context() if with_context else held.tool()
    with http_server.serving(http_app(ToolBox(one, function)), http="direct") as origin:
        port = httpx.URL(origin).port or 0
        with httpx.Client() as client:
            session = open_session(client, origin + "/mcp")["mcp-session-id"]
        raws = [modern("tools/call", name="hold", arguments={}).raw]
        raws.append(handshake(Sessions(session, "", ""), call("hold")).raw)
        for raw, cancelled in zip(raws, (["cancelled"], []), strict=True):
            held.ended.clear()
            held.outcomes.clear()
            for _ in range(2):  # a spare task needs a turn of the loop
                with connected(port) as connection:
                    connection.sendall(modern("tools/call", name="one", arguments={}).raw)
                    answers(connection, 1)
            with connected(port) as connection:
                connection.sendall(raw)
                assert held.begun.acquire(timeout=DEADLINE_SECONDS)
            if not cancelled:
                held.let_go()
            assert held.ended.wait(DEADLINE_SECONDS)
            assert held.outcomes == cancelled
    assert steps[1::2] == ["hold_in_context" if with_context else "hold"] * len(raws)
    assert [context.cancelled for context in held.contexts] == [True, False] * with_context


@pytest.mark.parametrize("with_context", [True, False])
@pytest.mark.parametrize("bound", ["max_calls", "concurrency", "tool_concurrency"])
def test_limits_of_calls_hold_for_functions(bound: str, held: Held, *, with_context: bool) -> None:
    function = held.tool_with_context() if with_context else held.tool()
    limits = {
        "max_calls": None,
        "concurrency": Limits(concurrency=2),
        "tool_concurrency": Limits(tool_concurrency={"hold": 2}),
    }
    server = Server(
        ToolBox(function), name="limited", limits=limits[bound], max_calls=4 if bound == "max_calls" else None
    )
    app = http_app(server)
    with http_server.serving(app, http="direct") as origin, ExitStack() as stack:
        port = httpx.URL(origin).port or 0
        raw = modern("tools/call", name="hold", arguments={}).raw
        waiting = [stack.enter_context(connected(port, raw)) for _ in range(2)]
        for _ in waiting:
            assert held.begun.acquire(timeout=DEADLINE_SECONDS)
        with connected(port, raw) as connection:
            ((head, body),) = answers(connection, 1)
        assert "at once" in json.dumps(body), head
        held.let_go()
        assert [answers(each, 1)[0][1]["result"]["isError"] for each in waiting] == [False, False]
