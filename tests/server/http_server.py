"""A real uvicorn server on a free port, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.applications import Starlette

DEADLINE_SECONDS = 20


class _Server(uvicorn.Server):
    """Says when it listens, and ends the streams of an app before it waits for them, as ``bridge serve`` does."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self.listens = threading.Event()
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if hasattr(self._app.state, "shutdown"):
            self._app.state.shutdown()
        await super().shutdown(sockets)


@contextmanager
def serving(app: Starlette, *, http: Any = "h11") -> Iterator[str]:
    """Serve an app while the context lasts; gives its origin, such as ``http://127.0.0.1:4711``."""
    config = uvicorn.Config(app, log_config=None, ws="none", http=http)
    server = _Server(config, app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        assert server.listens.wait(DEADLINE_SECONDS)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive(), "the server did not end"
