"""A plain function starts as soon as its request is read; all else of its call is as for any other."""

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
from bridge.server.limits import Limits
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.cli.bounding import answers, connected
from tests.server import http_server
from tests.server.http_mutations import Sessions, handshake, modern
from tests.server.http_server import call, open_session

DEADLINE_SECONDS = 10
mark: ContextVar[str] = ContextVar("mark", default="none")


@tool
async def outcome(moment: str, kind: str = "value") -> int:
    """End at a moment, in one way."""
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


def _crash(value: int) -> int:
    if value == 1:
        raise RuntimeError("a validator is broken")
    if value > 1:
        raise SystemExit(value)
    return value


@tool
async def checked(value: Annotated[int, AfterValidator(_crash)]) -> int:
    """Take a value that is checked by a function."""
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

    def let_go(self) -> None:
        for loop, released in self._release:
            loop.call_soon_threadsafe(released.set)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were started at once."""
    found: list[str] = []
    step = EagerTasks.step

    def noted(self: EagerTasks, work: Any) -> Any:
        found.append(work.__name__)
        return step(self, work)

    monkeypatch.setattr(EagerTasks, "step", noted)
    return found


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_every_outcome_is_that_of_a_function_that_asgi_starts(era: str, steps: list[str]) -> None:
    found: list[list[Any]] = []
    for http in ("direct", "httptools"):
        with http_server.serving(http_app(ToolBox(outcome, checked)), http=http) as origin:
            with httpx.Client() as client:
                session = open_session(client, origin + "/mcp")["mcp-session-id"]
            bodies = []
            with connected(httpx.URL(origin).port or 0) as connection:
                checks = [call("checked", {"value": value}) for value in (0, 1, 2)]
                for message in [*(call("outcome", arguments) for arguments in CALLS), *checks]:
                    in_session = handshake(Sessions(session, "", ""), message)
                    draft = in_session if era == "handshake" else modern("tools/call", **message["params"])
                    connection.sendall(draft.raw)
                    ((head, body),) = answers(connection, 1)
                    bodies.append((head.split()[1], body["result"] if "result" in body else body["error"]))
        found.append(bodies)
    assert found[0] == found[1]
    assert "outcome" in steps


def test_a_waiting_function_is_cancelled_when_its_client_goes_and_goes_on_in_a_session(
    held: Held, steps: list[str]
) -> None:
    with http_server.serving(http_app(ToolBox(one, held.tool())), http="direct") as origin:
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
    assert steps.count("hold") == len(raws)


@pytest.mark.parametrize("bound", ["max_calls", "concurrency", "tool_concurrency"])
def test_limits_of_calls_hold_for_plain_functions(bound: str, held: Held) -> None:
    limits = {
        "max_calls": None,
        "concurrency": Limits(concurrency=2),
        "tool_concurrency": Limits(tool_concurrency={"hold": 2}),
    }
    publisher = Publisher(
        ToolBox(held.tool()), name="limited", limits=limits[bound], max_calls=4 if bound == "max_calls" else None
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
