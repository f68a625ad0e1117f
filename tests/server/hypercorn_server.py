"""A real ASGI server on trio, hypercorn, on a free port and in a thread of its own."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

DEADLINE_SECONDS = 60
_tokens: list[Any] = []
"""Event loops of the running servers."""


def run(function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    """Run a coroutine function in the event loop of the server that was started last."""
    trio.from_thread.run(function, *arguments, trio_token=_tokens[-1])


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an app of `http_app` in this block; yields its origin, such as ``http://127.0.0.1:4711``."""
    listens, over = threading.Event(), trio.Event()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                listens.set()

        await app(scope, receive, noted if scope["type"] == "lifespan" else send)

    async def wait() -> None:
        await over.wait()
        app.state.shutdown()

    async def run(descriptor: int) -> None:
        _tokens.append(trio.lowlevel.current_trio_token())
        config = import_module("hypercorn.config").Config()
        config.bind = [f"fd://{descriptor}"]  # it closes the socket
        config.graceful_timeout = 0
        config.errorlog = None
        await import_module("hypercorn.trio").serve(noting, config, shutdown_trigger=wait)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trio.run, args=(run, os.dup(listener.fileno())), daemon=True)
        thread.start()
        assert listens.wait(DEADLINE_SECONDS)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            _tokens.pop().run_sync_soon(over.set)
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive(), "the server did not end"
