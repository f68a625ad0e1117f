"""Errors of a server differ from errors of the client when no response can arrive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import Response

from bridge.client import CallOptions, Connection, ReconnectPolicy
from bridge.errors import OutcomeUnknownError, ServerRefusedError
from tests.client.clock import Clock
from tests.client.conftest import opened, python_config
from tests.client.endpoint import MODERN, endpoint, error_of

if TYPE_CHECKING:
    from bridge.types import Json

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
HEALTH = 30.0
SAID = "Connection closed: the database went away"
FAILING_CHILD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        answer = {"result": {"protocolVersion": "2025-11-25", **told}}
    elif message.get("method") == "tools/call":
        answer = {"error": {"code": -32000, "message": "Connection closed: the database went away"}}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def in_one_piece(message: Json) -> Response:
    return error_of(message["id"], -32000, SAID)


async def on_a_stream(message: Json) -> Response:
    error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": SAID}}
    return Response(f"event: message\ndata: {json.dumps(error)}\n\n", media_type="text/event-stream")


async def not_at_all(_message: Json) -> Response:
    return Response(": nothing\n\n", media_type="text/event-stream")


async def refused(connection: Connection) -> None:
    """A refused call has the server's message."""
    with pytest.raises(ServerRefusedError) as caught:
        await connection.call_tool("pay", {}, options=CallOptions(repeatable=True))
    assert (caught.value.code, caught.value.message) == (-32000, SAID)
    assert connection.status().connects == 1


@ERAS
@pytest.mark.parametrize("answer", [in_one_piece, on_a_stream])
async def test_a_servers_own_error_is_its_answer_whatever_its_words(answer: Any, era: str) -> None:
    with endpoint(era, pay=answer) as server:
        async with opened(server.config(trusted=True)) as connection:
            await refused(connection)
        assert server.seen.count("pay") == 1


async def test_a_childs_own_error_is_its_answer_whatever_its_words() -> None:
    async with opened(python_config(FAILING_CHILD, protocol="legacy", trusted=True)) as connection:
        await refused(connection)


@ERAS
async def test_a_stream_that_ends_without_an_answer_leaves_the_outcome_unknown(era: str) -> None:
    with endpoint(era, pay=not_at_all) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(OutcomeUnknownError, match="the connection was lost; it may have run"):
                await connection.call_tool("pay", {})
        assert server.seen.count("pay") == 1


@pytest.mark.parametrize(("era", "asked", "times"), [("legacy", "ping", 2), (MODERN, "subscriptions/listen", 1)])
async def test_a_servers_own_error_is_a_sign_of_life(era: str, asked: str, times: int) -> None:
    clock = Clock()
    with endpoint(era, **{asked: in_one_piece}) as server:
        connection = Connection(server.config(), reconnect=ReconnectPolicy(wait=clock.wait))
        connection.on_list_changed("tools", lambda: None)
        async with connection:
            for _ in range(2):
                await clock.elapse(HEALTH)
                await clock.sleeping(HEALTH)
            await connection.list_tools()
            assert connection.status().connects == 1
        assert server.seen.count(asked) == times
