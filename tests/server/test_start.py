"""Requests while servers behind this one start: what is listed is served, and lists wait."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge import prompt, resource
from bridge.server.auth.access import Access
from bridge.server.exchange import LocalOrigin
from bridge.server.features import Features
from bridge.server.server import Server
from bridge.server.start import Start
from bridge.server.stdio import server as stdio
from bridge.server.stdio.process import ProtocolStreams
from tests.server.http_server import call, modern, request
from tests.server.stream_peer import DEADLINE_SECONDS, Peer, codes
from tests.server.tools import ADD, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio
UNKNOWN = -32602


async def _later(arguments: Mapping[str, Any], context: InvocationContext) -> str:
    return "later"


LATER = silent("later", _later)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


@resource("own://notes")
async def notes() -> str:
    """Return notes."""
    return "notes"


@prompt
async def ask() -> str:
    """Ask."""
    return "Well?"


def starting(*items: Any) -> tuple[Start, Server]:
    """Return a server whose lists are not complete, and its start."""
    start, features = Start(), Features.of(list(items))
    features = Features(tools=features.tools, resources=features.resources, prompts=features.prompts, start=start)
    return start, Server(features, name="tests")


def numbered(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [each | {"id": number} for number, each in enumerate(messages, 10)]


@pytest.mark.parametrize("is_modern", [False, True])
async def test_what_is_listed_is_served_and_lists_wait_for_the_end_of_the_start(*, is_modern: bool) -> None:
    start, server = starting(ADD, notes, ask)
    async with Peer(server, is_modern=is_modern).open() as peer:
        served = numbered(
            call("add", {"a": 1, "b": 2}),
            request("resources/read", {"uri": "own://notes"}),
            request("prompts/get", {"name": "ask"}),
        )
        peer.send(*served)
        assert codes(await peer.answers()) == {10: 0, 11: 0, 12: 0}
        waiting = numbered(request("tools/list"), request("prompts/list"), call("later"), request("com.example/x"))
        peer.send(*waiting)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await peer.connection.settled()
        assert (peer.received(), peer.connection.unanswered) == ([], len(waiting))
        server.tools.add(LATER)
        start.end()
        answers = {each["id"]: each for each in await peer.answers() if "id" in each}
        assert [tool["name"] for tool in answers[10]["result"]["tools"]] == ["add", "later"]
        assert {key: each["error"]["code"] for key, each in answers.items() if "error" in each} == {13: -32601}
        peer.send(*numbered(request("tools/list")))
        assert codes(peer.received()) == {10: 0}  # answered in its turn again


@pytest.mark.parametrize("name", ["later", "unknown"])
async def test_what_a_caller_does_not_see_waits_like_what_does_not_exist(name: str) -> None:
    start, server = starting(ADD, LATER)
    peer = Peer(server)
    async with peer.open():
        origin = LocalOrigin(Access(tools=("add",)))
        peer.connection.receive(call(name) | {"id": 10}, origin)
        peer.connection.receive(call("add", {"a": 1, "b": 2}) | {"id": 11}, origin)
        while not (answered := codes(peer.received())):
            await checkpoint()
        assert answered == {11: 0}
        start.end()
        assert codes(await peer.answers()) == {10: UNKNOWN}


async def test_a_session_that_is_opened_during_the_start_may_use_what_is_listed_later() -> None:
    start, server = starting(ADD, notes, ask)
    limited = Access(tools=("add",))
    assert {"resources", "prompts"} <= server.capabilities_for(limited, modern=False).keys()
    start.end()
    assert server.capabilities_for(limited, modern=False).keys().isdisjoint({"resources", "prompts"})


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_requests_over_stdio_that_wait_are_answered_although_the_input_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stdio, "ANSWER_SECONDS", 0)
    start, server = starting(ADD)
    (read, to_server), (from_server, write) = os.pipe(), os.pipe()
    served = stdio.StdioServer(server, ProtocolStreams(input_fd=read, output_fd=write))
    with os.fdopen(from_server, "rb") as answers, anyio.fail_after(DEADLINE_SECONDS):
        with os.fdopen(read, "rb"), os.fdopen(write, "wb"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(served.serve)
                os.write(to_server, json.dumps(modern(request("tools/list"))).encode() + b"\n")
                os.close(to_server)
                await served._ending.wait()
                for _ in range(9):  # turns of the loop in which a time-out of 0 would have passed
                    await checkpoint()
                start.end()
        assert [tool["name"] for tool in json.loads(answers.readline())["result"]["tools"]] == ["add"]
