"""The fast path of one connection over stdio: the opening, the calls that run, and what the SDK has to be told later.

The SDK is loaded when a message first needs it. It then finds a connection that has begun without it, so what was
answered here to open it is kept, and played to the SDK first: ``initialize`` and ``notifications/initialized`` of the
handshake era, or a ``server/discover`` that fixes the modern one. The client hears no second answer to that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.server.protocol import CONNECTION_CLOSED, error_message, is_request
from bridge.server.telemetry_fast_path import fast_path_of, skip_replayed
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from bridge.server.core import ServerCore
    from bridge.server.methods.method import PlainRequest
    from bridge.server.protocol import MessageId
    from bridge.types import Json

_LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
_CLOSED = {"code": CONNECTION_CLOSED, "message": "Connection closed"}
_OPENING_ID = "bridge: opening"


class FastStdio:
    """Answers the plain messages of one connection, on asyncio.

    Args:
        publisher: What is served.
        write: Writes a line.
        answered: Called with the id of every request that was answered, or was cancelled.
    """

    def __init__(
        self, publisher: ServerCore, write: Callable[[bytes], None], answered: Callable[[MessageId], None]
    ) -> None:
        self._publisher = publisher
        self._write = write
        self._answered = answered
        self._plans = fast_path_of(publisher, "stdio")
        self._plan: Callable[[Json], bytes | PlainRequest | None] | None = None
        self._is_open = False
        self._capabilities: Mapping[str, Any] = {}
        # By id as text: 7 and "7" are one, as for the SDK.
        self._calls: dict[str, tuple[MessageId, asyncio.Task[None]]] = {}
        self._unfinished: set[MessageId] = set()
        self._opening: list[Json] = []
        self._unlisten: Callable[[], None] | None = None
        self.silenced: set[MessageId] = set()
        """Requests that the SDK answers, too: what it says is not for the client."""

    def took(self, message: Json) -> bool:
        """Answer a message if it is plain, now or when its call is done; whether it was."""
        if not is_request(message):
            return self._took_notification(message)
        if not self._is_open:
            # The first request fixes the era; where it is not plain, the connection is the SDK's.
            self._is_open = True
            return self._opened(message)
        if self._plan is None or str(message["id"]) in self._calls:
            return False
        return self._carried_out(message["id"], self._plan(message))

    def opening(self) -> list[Json]:
        """What the SDK has to be told first: once, when it is loaded."""
        opening, self._opening = self._opening, []
        skip_replayed(opening)
        self.silenced.update(message["id"] for message in opening if "id" in message)
        return opening

    def sdk_announces(self) -> None:
        """The SDK is there, and tells the client of changed tools from now on."""
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    def cancel(self) -> None:
        """Cancel the running calls, because the connection ends; each that its client waits for gets an answer."""
        for request, task in self._calls.values():
            if not task.cancelling():  # else its client has cancelled it
                self._unfinished.add(request)
            _cancel(task)

    async def ended(self) -> None:
        """Wait until no call runs any more."""
        while self._calls:
            await asyncio.wait([task for _, task in self._calls.values()])

    def answer_unfinished(self) -> None:
        """Answer calls that `cancel` did not end."""
        while self._unfinished:
            self._write(error_message(self._unfinished.pop(), _CLOSED) + b"\n")

    def _opened(self, message: Json) -> bool:
        if message["method"] != "initialize":
            if not self._carried_out(message["id"], self._plans.modern(message)):
                return False
            self._plan = self._plans.modern
            envelope = {key: value for key, value in message["params"]["_meta"].items() if key != "progressToken"}
            discover = {"jsonrpc": "2.0", "id": _OPENING_ID, "method": "server/discover", "params": {"_meta": envelope}}
            self._opening = [discover]
            return True
        answer = self._plans.initialize(message)
        if answer is None:
            return False
        self._plan = self._plans.handshake
        self._capabilities = message["params"]["capabilities"]
        self._opening = [message]
        return self._carried_out(message["id"], answer)

    def _took_notification(self, message: Json) -> bool:
        if message.get("method") == "notifications/cancelled":
            request = (message.get("params") or {}).get("requestId")
            running = self._calls.get(str(request)) if type(request) in {int, str} else None
            if running is not None:
                _cancel(running[1])
            return running is not None
        # Kept for the SDK, unless it is there already.
        if message.get("method") != "notifications/initialized" or not self._opening or self._unlisten is not None:
            return False
        self._opening.append(message)
        self._unlisten = self._publisher.changes.listen(lambda: self._write(_LIST_CHANGED))
        return True

    def _carried_out(self, request: MessageId, plan: bytes | PlainRequest | None) -> bool:
        if plan is None:
            return False
        if isinstance(plan, bytes):
            self._write(plan + b"\n")
            self._answered(request)
        else:
            self._calls[str(request)] = request, asyncio.get_running_loop().create_task(self._call(plan))
        return True

    async def _call(self, call: PlainRequest) -> None:
        context = InvocationContext(client_capabilities=call.capabilities if call.modern else self._capabilities)
        try:
            answer, _ = await call.run(context)
            self._unfinished.discard(call.id)
            self._write(answer + b"\n")
        finally:
            if call.id in self._unfinished:
                self._unfinished.discard(call.id)
                self._write(error_message(call.id, _CLOSED) + b"\n")
            del self._calls[str(call.id)]
            self._answered(call.id)


def _cancel(call: asyncio.Task[None]) -> None:
    # A task that has not begun would end without anything of it having run, and its call would be kept for ever.
    call.get_loop().call_soon(call.cancel)
