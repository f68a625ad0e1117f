"""A plain function, even with a context, starts as soon as its request is read; in all else it is like any other."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Annotated, Any

import anyio
import httpx
import pytest
from pydantic import AfterValidator

from bridge.errors import ToolError
from bridge.hosting.eager_tasks import EagerTasks
from bridge.server import Publisher, http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.auth.identity import caller_of_request
from bridge.server.limits import Limits
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.schema.parameters import ToolMemoryId
from bridge.tools.toolbox import ToolBox
from tests.cli.bounding import answers, connected
from tests.server import http_server
from tests.server.http_mutations import Sessions, handshake, modern
from tests.server.http_server import call, events, open_session, whole_client
from tests.server.tools import NAME_FORM

DEADLINE_SECONDS = 10
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
mark: ContextVar[str] = ContextVar("mark", default="none")


@tool
async def outcome(moment: str, kind: str = "value") -> int:
    """End at a given point, in one way."""
    found = mark.get()
    mark.set("set")
    with anyio.fail_after(DEADLINE_SECONDS):
        if moment != "at once":
            await asyncio.sleep(0)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await anyio.lowlevel.checkpoint()
    match kind:
        case "refusal":
            raise ToolError(f"refused {moment}")
        case "crash":
            raise ValueError("a secret")
        case "exit":
            raise SystemExit(1)
        case "cancelled":
            raise asyncio.CancelledError
        case "mismatch":
            return "a text"  # type: ignore[return-value]  # on purpose
        case _:
            return len(found)


@tool
async def outcome_in_context(context: InvocationContext, moment: str, kind: str = "value") -> int:
    """End like the other, and send messages that nobody requested."""
    await context.progress(1, 2, "half")
    return await outcome(moment, kind)


@tool
async def facts(context: InvocationContext, memory: Annotated[str | None, ToolMemoryId]) -> dict[str, Any]:
    """Return the values of the context."""
    return {
        "memory": [memory, context.memory_id],
        "caller": context.caller,
        "accept": context.headers["Accept"],
        "capabilities": dict(context.client_capabilities),
        "meta": dict(context.meta),
        "account": context.account,
        "wants_logs": context.wants_logs,
        "has_peer": context.peer is not None,
    }


@tool
async def memory(memory: Annotated[str | None, ToolMemoryId]) -> str:
    """Return the memory id."""
    return str(memory)


def _crash(value: int) -> int:
    if value == 1:
        raise RuntimeError("a validator is broken")
    if value > 1:
        raise SystemExit(value)
    return value


@tool
async def checked(value: Annotated[int, AfterValidator(_crash)]) -> int:
    """Take a value that a function validates."""
    return value


@tool
async def one() -> int:
    """Return 1."""
    return 1


CALLS: list[dict[str, Any]] = [
    {"moment": "at once", "kind": 5},
    *(
        {"moment": moment, "kind": kind}
        for moment in ("at once", "later")
        for kind in ("value", "refusal", "crash", "exit", "cancelled", "mismatch", "value")
    ),
]


class Held:
    """A function that waits until it is released or cancelled."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Semaphore(0), threading.Event()
        self.outcomes: list[str] = []
        self.contexts: list[InvocationContext] = []
        self._release: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def tool(self) -> Any:
        @tool
        async def hold() -> str:
            """Wait."""
            released = asyncio.Event()
            self._release.append((asyncio.get_running_loop(), released))
            self.begun.release()
            try:
                await released.wait()
            except asyncio.CancelledError:
                self.outcomes.append("cancelled")
                raise
            finally:
                self.ended.set()
            return "released"

        return hold

    def tool_with_context(self) -> Any:
        hold = self.tool()

        @tool(name="hold")
        async def hold_in_context(context: InvocationContext) -> str:
            """Wait, and check whether the context is cancelled."""
            try:
                return str(await hold())
            finally:
                self.contexts.append(context)

        return hold_in_context

    def let_go(self) -> None:
        for loop, released in self._release:
            loop.call_soon_threadsafe(released.set)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Functions that were started at once."""
    found: list[str] = []
    step = EagerTasks.step

    def noted(self: EagerTasks, work: Any) -> Any:
        found.append(work.__name__)
        return step(self, work)

    monkeypatch.setattr(EagerTasks, "step", noted)
    return found


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("name", ["outcome", "outcome_in_context"])
def test_every_outcome_is_that_of_a_function_that_asgi_starts(name: str, era: str, steps: list[str]) -> None:
    found: list[list[Any]] = []
    for http in ("direct", "httptools"):
        with http_server.serving(http_app(ToolBox(outcome, outcome_in_context, checked)), http=http) as origin:
            with httpx.Client() as client:
                session = open_session(client, origin + "/mcp")["mcp-session-id"]
            bodies = []
            with connected(httpx.URL(origin).port or 0) as connection:
                checks = [call("checked", {"value": value}) for value in (0, 1, 2)]
                for message in [*(call(name, arguments) for arguments in CALLS), *checks]:
                    in_session = handshake(Sessions(session, "", ""), message)
                    draft = in_session if era == "handshake" else modern("tools/call", **message["params"])
                    connection.sendall(draft.raw)
                    ((head, body),) = answers(connection, 1)
                    bodies.append((head.split()[1], body["result"] if "result" in body else body["error"]))
        found.append(bodies)
    assert found[0] == found[1]
    assert steps.count(name) > len(CALLS) // 2


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_started_function_gets_the_context_that_it_gets_in_asgi(era: str, steps: list[str]) -> None:
    found = []
    for http in ("direct", "httptools"):
        with (
            http_server.serving(http_app(ToolBox(one, facts, memory)), http=http) as origin,
            whole_client() as client,
        ):
            session = open_session(client, origin + "/mcp", {"roots": {}})
            calls = [call("one"), call("facts", _meta={"traceparent": TRACE}), call("memory")]
            texts = []
            for message in calls:
                sent = http_server.modern(message, {"sampling": {}}) if era == "modern" else message
                headers = http_server.modern_headers(sent) if era == "modern" else session
                response = client.post(origin + "/mcp", json=sent, headers=headers)
                texts.append(http_server.answer(response)["result"]["content"][0]["text"])
        given = json.loads(texts[1])
        own = session["mcp-session-id"] if era == "handshake" else None
        assert (given.pop("memory"), texts[2]) == ([own, own], str(own))
        found.append(given)
    assert found[0] == found[1]
    assert found[0]["capabilities"] == ({"sampling": {}} if era == "modern" else {"roots": {}})
    assert found[0]["meta"] == {"traceparent": TRACE}
    assert found[0]["account"]
    assert steps.count("facts") == steps.count("memory") == 1


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
    assert steps.count("_in_context") > 2


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
    publisher = Publisher(ToolBox(one, memory), name="chosen", memory_id_of=lambda context: f"of {context.account}")
    app = http_app(None, publisher=publisher)
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
def test_limits_of_calls_hold_for_plain_functions(bound: str, held: Held, *, with_context: bool) -> None:
    function = held.tool_with_context() if with_context else held.tool()
    limits = {
        "max_calls": None,
        "concurrency": Limits(concurrency=2),
        "tool_concurrency": Limits(tool_concurrency={"hold": 2}),
    }
    publisher = Publisher(
        ToolBox(function), name="limited", limits=limits[bound], max_calls=4 if bound == "max_calls" else None
    )
    app = http_app(None, publisher=publisher)
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
