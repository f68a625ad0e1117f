"""Reports of servers under test, which reach the test over a socket, so that no test has to poll or guess."""

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
    """The received reports, in order; each can be awaited once."""

    def __init__(self, port: int) -> None:
        self.port = port
        """Address for the reports."""
        self.words: list[str] = []
        """All reports."""
        self._unread: list[str] = []
        self._came = anyio.Event()

    async def receive(self, stream: SocketStream) -> None:
        """Receive one report: the whole text of a connection."""
        async with stream:
            text = b"".join([chunk async for chunk in stream]).decode()
        self.words.append(text)
        self._unread.append(text)
        self._came.set()
        self._came = anyio.Event()

    async def wait_for(self, word: str) -> None:
        """Wait until a report has arrived that was not awaited before."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while word not in self._unread:
                await self._came.wait()
        self._unread.remove(word)


@asynccontextmanager
async def listening() -> AsyncIterator[Reports]:
    """Receive reports in this block."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        reports = Reports(listener.extra(SocketAttribute.local_port))
        tasks.start_soon(listener.serve, reports.receive)
        yield reports
        tasks.cancel_scope.cancel()
