"""Messages of calls over one stream, in both eras, on both event loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic_core import to_json

from bridge.protocol.messages import answer, result_beginning
from bridge.server.auth.access import EVERYTHING
from bridge.server.connection import StreamConnection
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.server.results.contents_stream import ResponseContents
from bridge.tools.context import InvocationContext  # noqa: TC001 - read at runtime
from tests.server.http_server import call, initialize, request
from tests.server.stream_peer import Peer, cancellation, codes, published
from tests.server.tools import ADD, GREET, made

if TYPE_CHECKING:
    from bridge.protocol.session import Session
    from bridge.server.core import ServerCore
    from bridge.server.exchange import Origin


pytestmark = pytest.mark.anyio
in_both_eras = pytest.mark.parametrize("is_modern", [False, True])


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


# --- messages of calls -----------------------------------------------------------------------------------------------


async def test_a_call_asks_its_client_and_withdraws_the_question_when_it_is_cancelled() -> None:
    peer = Peer(published(GREET))
    async with peer.connection.running():
        peer.send(initialize({"elicitation": {}}))
        peer.received()
        peer.send(call("greet") | {"id": 7})
        await anyio.wait_all_tasks_blocked()
        (asked,) = peer.received()
        peer.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        peer.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}})
        (answered,) = await peer.answers()
        assert answered["result"]["content"][0]["text"] == "Hello Ada"
        peer.send(call("greet") | {"id": 8})
        await anyio.wait_all_tasks_blocked()
        (asked,) = peer.received()
        peer.send(cancellation(8))
        await peer.connection.ended()
        (withdrawn,) = peer.received()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", asked["id"])


async def test_progress_waits_while_the_stream_is_full_and_an_answer_does_not() -> None:
    async def count(arguments: Any, context: InvocationContext) -> str:
        for number in (1, 2):
            await context.progress(number)
        return "counted"

    drained = anyio.Event()
    async with Peer(published(made("count", count), ADD), drained=drained.wait).open() as peer:
        counting = call("count", {}, _meta={"progressToken": 1}) | {"id": 7}
        peer.send(counting, call("add", {"a": 1, "b": 2}) | {"id": 8})
        await anyio.wait_all_tasks_blocked()
        received = peer.received()
        assert ([each["params"]["progress"] for each in received if "params" in each], codes(received)) == ([1], {8: 0})
        drained.set()
        assert [each.get("method") for each in await peer.answers()] == ["notifications/progress", None]


async def test_a_tool_that_only_reports_lets_others_run_and_can_be_cancelled() -> None:
    async def report(arguments: Any, context: InvocationContext) -> None:
        number = 0
        while True:
            number += 1
            await context.progress(number)

    async with Peer(published(made("report", report), ADD)).open() as peer:
        peer.send(call("report", {}, _meta={"progressToken": 1}) | {"id": 7}, call("add", {"a": 1, "b": 2}) | {"id": 8})
        while not peer.lines:
            await checkpoint()
        peer.send(cancellation(7))
        assert codes(await peer.answers()) == {8: 0}


class Passing:
    """Dispatches each request to contents that another server sends."""

    def __init__(self, core: ServerCore, code: int) -> None:
        self._core = core
        self._code = code
        self.received = anyio.Event()

    def handshake(self, message: dict[str, Any], session: Session, origin: Origin, version: str) -> ServedExchange:
        exchange = ServedExchange(
            message["id"], message["method"], {}, version, False, {}, session, origin, self._core.running, to_json
        )
        exchange.responder = self  # type: ignore[assignment]  # it starts nothing in the same turn
        return exchange

    async def run(self, exchange: ServedExchange) -> tuple[bytes, int]:
        exchange.stream = ResponseContents("it", result_beginning(exchange.id), None, len)
        exchange.opened_outlet().stream_contents(exchange.stream)
        assert exchange.stream.begin(None)
        for part in (b'{"contents":', b"[]"):
            await exchange.stream.write(part)
        await self.received.wait()
        return (exchange.response(b"}"), 0) if not self._code else (answer(exchange.id, {}), self._code)


@pytest.mark.parametrize("keeps_parts", [True, False])
async def test_a_result_in_parts_is_written_once_it_is_complete(*, keeps_parts: bool) -> None:
    lines, core = list[bytes](), published(ADD)
    dispatch: Any = Passing(core, 0)
    options: Any = {"write_parts": lambda parts: lines.append(b"|".join(parts))} if keeps_parts else {}
    connection = StreamConnection(core, dispatch, LocalOrigin(EVERYTHING), lines.append, **options)
    async with connection.running():
        connection.receive(request("resources/read", {}, 7))
        await anyio.wait_all_tasks_blocked()
        assert lines == []
        dispatch.received.set()
        await connection.settled()
    parts = [b'{"jsonrpc":"2.0","id":7,"result":{"contents":', b"[]", b"}}"]
    assert lines == [(b"|" if keeps_parts else b"").join(parts)]


async def test_parts_of_a_result_that_has_failed_are_not_written() -> None:
    lines, core = list[bytes](), published(ADD)
    dispatch: Any = Passing(core, -32603)
    connection = StreamConnection(core, dispatch, LocalOrigin(EVERYTHING), lines.append)
    async with connection.running():
        connection.receive(request("resources/read", {}, 7))
        dispatch.received.set()
        await connection.settled()
    assert lines == [answer(7, {})]


# --- faults ----------------------------------------------------------------------------------------------------------


async def test_a_memory_that_cannot_be_told_is_an_error_of_its_call_and_the_next_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def memory_id_of(context: InvocationContext) -> Any:
        raise ValueError("the secret")

    async with Peer(published(ADD, memory_id_of=memory_id_of)).open() as peer:
        for _ in range(2):
            peer.send(call("add", {"a": 1, "b": 2}) | {"id": 7})
            (answered,) = await peer.answers()
            told = {"code": -32603, "message": "the request for 'add' failed; the server's log says why"}
            assert answered["error"] == told
    assert "the secret" in caplog.text


@in_both_eras
async def test_a_text_that_is_not_unicode_is_answered(*, is_modern: bool) -> None:
    async with Peer(published(ADD), is_modern=is_modern).open() as peer:
        peer.send(request("\ud800", {}, "\ud801"), call("add", {"a": 1, "b": 2}) | {"id": "7\ud802"})
        assert codes(await peer.answers()) == {"\ud801": -32601, "7\ud802": 0}


async def test_a_message_that_cannot_be_handled_costs_nothing_but_its_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Peer(published(ADD)).open() as peer:

        def fail(*_: object) -> Any:
            raise ValueError("the secret")

        monkeypatch.setattr(peer.connection.session, "answered", fail)
        monkeypatch.setattr(peer.connection.session, "id_problem", fail)
        peer.send({"jsonrpc": "2.0", "id": 1, "result": {}}, request("ping", {}, 7))
        (answered,) = peer.received()
        assert (answered["id"], answered["error"]["code"]) == (7, -32603)
    assert caplog.text.count("ValueError: the secret") == 2
