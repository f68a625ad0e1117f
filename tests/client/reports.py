"""Reports: what servers under test tell the test, over a socket, so that nothing has to be guessed or waited for."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketAttribute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import SocketStream

DEADLINE_SECONDS = 60


class Reports:
    """The words that came, in their order; each can be waited for once."""

    def __init__(self, port: int) -> None:
        self.port = port
        """Where words are to be sent."""
        self.words: list[str] = []
        """All that came."""
        self._unread: list[str] = []
        self._came = anyio.Event()

    async def receive(self, stream: SocketStream) -> None:
        """Take one word, which is all that a connection says."""
        async with stream:
            text = b"".join([chunk async for chunk in stream]).decode()
        self.words.append(text)
        self._unread.append(text)
        self._came.set()
        self._came = anyio.Event()

    async def wait_for(self, word: str) -> None:
        """Wait until a word has come that was not waited for before."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while word not in self._unread:
                await self._came.wait()
        self._unread.remove(word)


@asynccontextmanager
async def listening() -> AsyncIterator[Reports]:
    """Take words while the context lasts."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        reports = Reports(listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, reports.receive)
        yield reports
        tasks.cancel_scope.cancel()
