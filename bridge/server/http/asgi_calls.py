"""Calls and streams through ASGI, on asyncio and trio.

Most calls finish in their first step. A disconnect is watched, and a silent stream kept alive, once a call waits.
"""

from __future__ import annotations

from types import coroutine as generator_coroutine
from typing import TYPE_CHECKING, Any

import anyio
from anyio import create_task_group

from bridge.portal import runs_on_asyncio
from bridge.server.dispatch import internal_error_message
from bridge.server.http.responses import AsgiBody, Response, send_response
from bridge.server.http.streams import KEEP_ALIVE, SILENT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from anyio import CancelScope, Event

    from bridge.server.http.calls import HttpCall
    from bridge.server.http.requests import Request
    from bridge.server.http.responses import Header


async def run_in_asgi(call: HttpCall) -> None:
    """Run a call, and send its response; cancel it when its client disconnects, if it ends with its client.

    A call of a session goes on, unless its response is a result in parts.
    """
    request = call.request
    body = AsgiBody(request.send)
    call.body = body
    response: Response | None = None
    async with create_task_group() as group:  # around the first step, whose scopes may outlast it
        response = _started(call)
        if response is None:
            group.start_soon(_watch, call, request, body, group.cancel_scope)
            group.start_soon(_keep_alive, call, body)
            response = await call.run()
            group.cancel_scope.cancel()
    if response is None or not body.is_open:
        return
    if body.has_begun:
        if response.is_rest:
            await body.end(response.body)
    elif call.session is None:
        await send_response(request.send, response)
    else:
        with call.session.sending(response.body):
            await send_response(request.send, response)


def _started(call: HttpCall) -> Response | None:
    """Run the first step of a call; return the response if it has ended."""
    if not runs_on_asyncio():  # trio would find the scopes of the step and those of the rest interleaved
        return None
    try:
        return call.start(_step)
    except Exception as error:  # noqa: BLE001 - logged and answered
        return Response(internal_error_message(call.request.message, error))


async def _watch(call: HttpCall, request: Request, body: AsgiBody, scope: CancelScope) -> None:
    """Cancel the call when its client disconnects, if it ends with its client."""
    await _disconnect(request)
    body.is_open = False
    if call.ends_with_client or (body.has_begun and call.stream is None):
        scope.cancel()


async def _keep_alive(call: HttpCall, body: AsgiBody) -> None:
    while body.is_open:
        await anyio.sleep(SILENT_SECONDS)
        await call.keep_alive()


async def serve_stream(
    request: Request,
    headers: tuple[Header, ...],
    produce: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]],
    ended: Event,
) -> None:
    """Serve an event stream until its client disconnects, it is ended, or it has no more to send.

    Args:
        request: The request.
        headers: Headers of the response.
        produce: Writes the events.
        ended: Set when the stream is to end.
    """
    body = AsgiBody(request.send)
    body.begin(headers)

    async def keep_alive() -> None:
        while True:
            await anyio.sleep(SILENT_SECONDS)
            await body.write(KEEP_ALIVE)

    async def watch(scope: CancelScope) -> None:
        await _disconnect(request)
        body.is_open = False
        scope.cancel()

    async def end(scope: CancelScope) -> None:
        await ended.wait()
        scope.cancel()

    await body.write(b"")
    async with create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        group.start_soon(end, group.cancel_scope)
        group.start_soon(keep_alive)
        await produce(body.write)
        group.cancel_scope.cancel()
    await body.end()


async def _disconnect(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _step(work: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
    """Run the first step of a coroutine in this task: a `bridge.types.Step`."""
    return _continued(work, work.send(None))


@generator_coroutine
def _continued(work: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine whose last step awaits something."""
    try:
        while True:
            try:
                given = yield awaited
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                awaited = work.throw(error)
            else:
                awaited = work.send(given)
    except StopIteration as end:
        return end.value
