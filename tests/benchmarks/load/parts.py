"""The parts of one call within the process: each function that a server runs, timed alone.

A function that calls others is timed as a whole, and the others are subtracted: the parts sum up to the whole.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge import ToolBox
from bridge.protocol.messages import read_message
from bridge.server.fast_path import FastPath
from bridge.server.http.fast import FastHttp
from bridge.server.http.guards import PreAsgiHandler
from bridge.server.http.host_origin import AllowedHosts, HostOriginGuard
from bridge.server.http.requests import BodyLimitGuard, Head, Request, shares_of_bodies
from bridge.server.http.responses import PlainResponse
from bridge.server.http.sessions import Sessions
from bridge.server.methods.method import PlainRequest
from bridge.server.publisher import Publisher
from bridge.server.stdio.fast import FastStdio
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.results import ResultWriter
from bridge.tools.schema.signature import signature_of
from tests.benchmarks.load.stopwatch import best_seconds
from tests.benchmarks.messages import INITIALIZE, Era, call, line, says_three
from tests.benchmarks.tools import add

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.http.guards import Guard
    from bridge.server.http.pending_calls import PendingCall
    from bridge.types import Json

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
    publisher = Publisher(ToolBox([add]), name="parts")
    fast = FastHttp(publisher, Sessions(), [_PATH])
    guards: list[Guard] = [
        HostOriginGuard(AllowedHosts("127.0.0.1"), lambda: True),
        BodyLimitGuard(_MAX_BODY_BYTES, shares_of_bodies(_MAX_BODY_BYTES)),
    ]
    direct = PreAsgiHandler(fast, guards, lambda: True)
    head = Head(scope)  # a client repeats it
    whole = await _measured_function(lambda: _answer(direct.begin(head, body)))
    answered = await _measured_function(lambda: _answer(fast.begin(Request(head, body))))
    parsing = await _measured_function(lambda: from_json(body))
    message = read_message(body)
    assert message is not None
    rest = await _from_plan_on(publisher, message, FastPath.modern)
    return [
        Part(name="Host, Origin, the body within its limit", seconds=whole - answered),
        Part(name="routing, handing the answer over", seconds=answered - parsing - _sum(rest)),
        Part(name="parsing the JSON", seconds=parsing),
        *rest,
    ]


async def stdio_parts() -> list[Part]:
    """Return the parts of a call of the handshake era, from the line that was read to the line that is written."""
    publisher = Publisher(ToolBox([add]), name="parts")
    answers: list[bytes] = []
    fast = FastStdio(publisher, answers.append, lambda _: None, lambda _: None)
    assert fast.handles(INITIALIZE)
    text = line(call(Era.HANDSHAKE, "add"))
    message = read_message(text)
    assert message is not None

    async def take() -> None:
        fast.handles(message)
        await asyncio.sleep(0)  # the call runs in a task of its own

    whole = await _measured(take)
    assert says_three(answers[-1]), answers[-1]
    parsing = await _measured_function(lambda: read_message(text))
    rest = await _from_plan_on(publisher, message, FastPath.handshake)
    return [
        Part(name="parsing the JSON, is it a message", seconds=parsing),
        Part(name="a task for the call, context, handing the answer over", seconds=whole - _sum(rest)),
        *rest,
    ]


async def _from_plan_on(
    publisher: Publisher, message: Json, plan: Callable[[FastPath, Json], bytes | PlainRequest | None]
) -> list[Part]:
    plans = FastPath(publisher)
    planned = plan(plans, message)
    assert isinstance(planned, PlainRequest), "the call is not plain"
    planning = await _measured_function(lambda: plan(plans, message))
    running = await _measured(lambda: planned.responder.call_plain(planned, ""))
    execution = await _execution()
    return [
        Part(name="plan: is all of it plain", seconds=planning),
        *execution,
        Part(name="limits, errors, the response", seconds=running - _sum(execution)),
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


def _answer(begun: PlainResponse | PendingCall | None) -> None:
    assert begun is not None, "the call is not plain"
    answer = begun if isinstance(begun, PlainResponse) else begun.start(lambda work: work.send(None))
    assert answer is not None, "the call has waited"
    assert answer.body.startswith(b"{"), answer


async def _measured(work: Callable[[], Any]) -> float:
    return await best_seconds(work, calls=_CALLS)


async def _measured_function(function: Callable[[], object]) -> float:
    async def work() -> None:
        function()

    return await best_seconds(work, calls=_CALLS)


def _sum(parts: list[Part]) -> float:
    return sum(part.seconds for part in parts)
