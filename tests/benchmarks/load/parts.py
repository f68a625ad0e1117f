"""The parts of one call within the process: each function that a server runs, timed alone.

A function that calls others is timed as a whole, and the others are subtracted: the parts sum up to the whole.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge import ToolBox
from bridge.protocol.messages import read_message
from bridge.server.auth.access import EVERYTHING
from bridge.server.connection import StreamConnection
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.server.http.endpoint import Endpoint
from bridge.server.http.guards import PreAsgiHandler
from bridge.server.http.host_origin import AllowedHosts, HostOriginGuard
from bridge.server.http.requests import BodyLimitGuard, Head, Request, shares_of_bodies
from bridge.server.http.responses import Response
from bridge.server.http.session_requests import SessionRequests
from bridge.server.http.sessions import Sessions
from bridge.server.http.streams import OpenStreams
from bridge.server.server import Server
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.results import ResultWriter
from bridge.tools.schema.signature import signature_of
from tests.benchmarks.load.stopwatch import best_seconds
from tests.benchmarks.messages import INITIALIZE, Era, call, line, says_three
from tests.benchmarks.tools import add

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from bridge.server.http.calls import HttpCall
    from bridge.server.http.guards import Guard

_CALLS = 1000
_MAX_BODY_BYTES = 4 * 1024 * 1024
_PATH = "/mcp"
_ARGUMENTS = {"a": 1, "b": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Run a part of the work."""

    name: str
    seconds: float


async def http_parts(raw: bytes) -> list[Part]:
    """Return the parts of a modern call, from the request that the HTTP server has parsed.

    Args:
        raw: The request as received.
    """
    scope, body = _parsed(raw)
    server = Server(ToolBox([add]), name="parts")
    dispatch = Dispatch(server)
    handshake = SessionRequests(server, dispatch, Sessions(), OpenStreams())
    endpoint = Endpoint(dispatch, server.running, handshake, [_PATH])
    guards: list[Guard] = [
        HostOriginGuard(AllowedHosts("127.0.0.1"), lambda: True),
        BodyLimitGuard(_MAX_BODY_BYTES, shares_of_bodies(_MAX_BODY_BYTES)),
    ]
    handler = PreAsgiHandler([endpoint], guards, lambda: True)
    head = Head(scope)  # a client repeats it
    request = Request(head, body)
    whole = await _measured_function(lambda: _check(handler.begin(head, body)))
    answered = await _measured_function(lambda: _check(endpoint.begin(Request(head, body))))
    parsing = await _measured_function(lambda: Request(head, body).message)

    async def start(exchange: ServedExchange) -> None:
        assert exchange.responder.start(exchange, _first_step) is not None, "the call has waited"

    rest = await _from_dispatch_on(lambda: dispatch.modern(request.message, request), start)
    return [
        Part(name="Host, Origin, the body within its limit", seconds=whole - answered),
        Part(name="routing, the response", seconds=answered - parsing - _sum(rest)),
        Part(name="parsing the JSON", seconds=parsing),
        *rest,
    ]


async def stdio_parts() -> list[Part]:
    """Return the parts of a call of the handshake era, from the line that was read to the line that is written."""
    server = Server(ToolBox([add]), name="parts")
    dispatch, origin = Dispatch(server), LocalOrigin(EVERYTHING)
    answers: list[bytes] = []
    connection = StreamConnection(server, dispatch, origin, answers.append)
    text = line(call(Era.HANDSHAKE, "add"))
    message = read_message(text)
    assert message is not None

    async def take() -> None:
        connection.receive(message)
        await asyncio.sleep(0)  # the call runs in a task of its own

    async with connection.running():
        connection.receive(INITIALIZE)
        whole = await _measured(take)
        await connection.settled()
    assert says_three(answers[-1]), answers[-1]
    parsing = await _measured_function(lambda: read_message(text))
    session = connection.session
    rest = await _from_dispatch_on(
        lambda: dispatch.handshake(message, session, origin, session.version),
        lambda exchange: exchange.responder.run(exchange),
    )
    return [
        Part(name="parsing the JSON, is it a message", seconds=parsing),
        Part(name="a task for the call, writing the answer", seconds=whole - _sum(rest)),
        *rest,
    ]


async def _from_dispatch_on(
    dispatch: Callable[[], bytes | ServedExchange], run: Callable[[ServedExchange], Awaitable[object]]
) -> list[Part]:
    async def run_dispatched() -> None:
        exchange = dispatch()
        assert isinstance(exchange, ServedExchange), "the call was refused"
        await run(exchange)

    dispatching = await _measured_function(dispatch)
    running = await _measured(run_dispatched) - dispatching
    execution = await _execution()
    return [
        Part(name="dispatch: the envelope, the method, its parameters", seconds=dispatching),
        *execution,
        Part(name="limits, errors, the answer", seconds=running - _sum(execution)),
    ]


async def _execution() -> list[Part]:
    signature = signature_of(add)
    reader = ArgumentReader("add", signature.adapter, signature.internal_schema)
    writer = ResultWriter("add", signature.return_annotation)
    validation = await _measured_function(lambda: reader.read(_ARGUMENTS))
    function = await _measured(lambda: add(a=1, b=2))
    result = await _measured_function(lambda: writer.write_json(3))
    return [
        Part(name="execution: validating the arguments", seconds=validation),
        Part(name="execution: the function", seconds=function),
        Part(name="execution: its result as JSON", seconds=result),
    ]


def _parsed(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Return a request as uvicorn's parser does: its scope and body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = [each.partition(b":") for each in head.split(b"\r\n")[1:]]
    headers = [(name.lower(), value.strip()) for name, _, value in lines]
    return {"type": "http", "method": "POST", "path": _PATH, "root_path": "", "headers": headers}, body


def _check(begun: Response | HttpCall | None) -> None:
    """Complete a call, and check its response."""
    assert begun is not None, "the request has to go through ASGI"
    response = begun if isinstance(begun, Response) else begun.start(_first_step)
    assert response is not None, "the call has waited"
    assert response.body.startswith(b"{"), response


def _first_step(work: Coroutine[Any, Any, Any]) -> Any:
    return work.send(None)


async def _measured(work: Callable[[], Any]) -> float:
    return await best_seconds(work, calls=_CALLS)


async def _measured_function(function: Callable[[], object]) -> float:
    async def work() -> None:
        function()

    return await best_seconds(work, calls=_CALLS)


def _sum(parts: list[Part]) -> float:
    return sum(part.seconds for part in parts)
