"""Fast path of one connection over stdio.

The SDK is imported when a message first needs it. The messages that opened the connection are then replayed to it:
``initialize`` and ``notifications/initialized`` of the handshake era, or a ``server/discover`` that selects the modern
era. The SDK's responses to them are not sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from bridge.protocol.messages import error_message, is_request
from bridge.protocol.versions import CONNECTION_CLOSED, INVALID_REQUEST
from bridge.server.fast_path import internal_error_message
from bridge.server.telemetry_fast_path import fast_path_of, skip_replayed
from bridge.tools.context import InvocationContext
from bridge.wire.tasks import without_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from bridge.protocol.messages import MessageId
    from bridge.server.changes import Change
    from bridge.server.core import ServerCore
    from bridge.server.methods.method import PlainRequest
    from bridge.types import Json

_LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}\n'
_CLOSED = {"code": CONNECTION_CLOSED, "message": "Connection closed"}
_OPENING_ID = "bridge: opening"


class _HeldBody:
    """Body of a response that is held until it is complete, because others wait behind its line."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.parts: list[bytes] = []

    def begin(self) -> None:
        """Do nothing."""

    async def write(self, part: bytes) -> None:
        """Hold a part."""
        self.parts.append(part)


class FastStdio:
    """Answers the plain messages of one connection, on asyncio."""

    def __init__(
        self,
        publisher: ServerCore,
        write: Callable[[bytes], None],
        answered: Callable[[MessageId], None],
        to_sdk: Callable[[Json], None],
    ) -> None:
        self._publisher = publisher
        publisher.stdio_client = self
        self._write = write
        self._to_sdk = to_sdk
        self._answered = answered
        self._plans = fast_path_of(publisher, "stdio")
        self._plan: Callable[[Json], bytes | PlainRequest | None] | None = None
        self._is_open = False
        self._capabilities: Mapping[str, Any] = {}
        self._knows_client = True
        # By id as text, since 7 and "7" are the same id, as in the SDK.
        self._calls: dict[str, tuple[MessageId, asyncio.Task[None]]] = {}
        self._cancelled: WeakSet[asyncio.Task[None]] = WeakSet()
        """Tasks that were cancelled by the client, or because the connection ends."""
        self._unfinished: set[MessageId] = set()
        self._opening: list[Json] = []
        self._unlisten: Callable[[], None] | None = None
        self.silenced: set[MessageId] = set()
        """Ids of replayed requests, whose responses from the SDK are not sent."""

    def handles(self, message: Json) -> bool:
        """Handle a plain message, or return False; the response to a call is written when it is done."""
        if not is_request(message):
            return self._handles_notification(message)
        if not self._is_open:
            # The first request selects the era; if it is not plain, the SDK serves the whole connection.
            self._is_open = True
            return self._opens(message)
        if message["method"] == "initialize":  # the SDK negotiates again: only it knows the client's capabilities then
            self._knows_client = False
        if self._plan is None or str(message["id"]) in self._calls:
            return False
        if message["id"] in self._publisher.handed_over:  # its response could not be told from that of the running call
            error = {"code": INVALID_REQUEST, "message": f"the id {message['id']!r} is in use by a running call"}
            self._write(error_message(message["id"], error) + b"\n")
            self._answered(message["id"])
            return True
        return self._executes(message, self._plan(message))

    def opening(self) -> list[Json]:
        """Return the messages to replay to the SDK; once, when it is imported."""
        opening, self._opening = self._opening, []
        skip_replayed(opening)
        self.silenced.update(message["id"] for message in opening if "id" in message)
        return opening

    def answered_by_sdk(self, message_id: MessageId | None) -> None:
        """Note that the SDK has answered a request, and announces changes of tools from now on.

        A running call that it has answered without waiting for it is cancelled.
        """
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        if message_id is not None and (channel := self._publisher.handed_over.pop(message_id, None)) is not None:
            channel.abandon()

    def cancel(self) -> None:
        """Cancel the running calls, because the connection ends; their clients are answered by errors."""
        for request, task in self._calls.values():
            if not task.cancelling():  # else its client has cancelled it
                self._unfinished.add(request)
            self._cancel(task)

    async def ended(self) -> None:
        """Wait until all calls have ended."""
        while self._calls:
            await asyncio.wait([task for _, task in self._calls.values()])

    def answer_unfinished(self) -> None:
        """Answer calls that still run after `cancel`."""
        while self._unfinished:
            self._write(error_message(self._unfinished.pop(), _CLOSED) + b"\n")

    def _opens(self, message: Json) -> bool:
        if message["method"] != "initialize":
            if not self._executes(message, self._plans.modern(message)):
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
        self._capabilities = without_tasks(message["params"]["capabilities"])
        self._opening = [message]
        return self._executes(message, answer)

    def _handles_notification(self, message: Json) -> bool:
        if message.get("method") == "notifications/cancelled":
            request = (message.get("params") or {}).get("requestId")
            running = self._calls.get(str(request)) if type(request) in {int, str} else None
            if running is not None:
                self._cancel(running[1])
            return running is not None
        # Keep it for the SDK, unless that serves the connection already.
        if message.get("method") != "notifications/initialized" or not self._opening or self._unlisten is not None:
            return False
        self._opening.append(message)
        self._unlisten = self._publisher.changes.listen(self._announce)
        return True

    def _announce(self, changes: frozenset[Change]) -> None:
        # Only the SDK serves subscriptions to the content of resources.
        for feature in sorted(change.feature for change in changes if change.uri is None):
            self._write(_LIST_CHANGED % feature.encode())

    def _executes(self, message: Json, plan: bytes | PlainRequest | None) -> bool:
        if plan is None:
            return False
        request: MessageId = message["id"]
        if isinstance(plan, bytes):
            self._write(plan + b"\n")
            self._answered(request)
        elif plan.may_talk and not (plan.modern or self._knows_client):
            return False
        else:
            call = self._talking_call(plan, message) if plan.may_talk else self._call(plan, message)
            self._calls[str(request)] = request, asyncio.get_running_loop().create_task(call)
        return True

    async def _call(self, call: PlainRequest, message: Json) -> None:
        try:
            is_plain = call.tool is not None and not call.takes_context
            answer, _ = await (call.responder.call_plain(call, "") if is_plain else call.run(self._context(call)))
            self._unfinished.discard(call.id)
            self._write(answer + b"\n")
        except asyncio.CancelledError as error:
            self._answer_cancelled(message, error)
        finally:
            self._end(call)

    async def _talking_call(self, call: PlainRequest, message: Json) -> None:
        task = asyncio.current_task()
        assert task is not None

        def hand_over() -> None:
            self._publisher.handed_over[call.id] = channel
            del self._calls[str(call.id)]  # the SDK gets cancellations, and answers
            self._to_sdk(message)

        context, held = self._context(call), _HeldBody()
        channel = call.open_channel(context, None if call.modern else self)
        if call.stream is not None:
            call.stream(call, held)
        channel.attach(task, hand_over)
        try:
            answer, code = await call.run(context)
            if not channel.is_handed_over:
                self._unfinished.discard(call.id)
                for part in held.parts if code == 0 else ():
                    self._write(part)
                self._write(answer + b"\n")
        except asyncio.CancelledError as error:
            if channel.is_handed_over:
                raise
            self._answer_cancelled(message, error)
        finally:
            channel.end()
            if not channel.is_handed_over:
                self._end(call)

    def _context(self, call: PlainRequest) -> InvocationContext:
        return InvocationContext(
            client_capabilities=call.capabilities if call.modern else self._capabilities, protocol_version=call.version
        )

    def _answer_cancelled(self, message: Json, error: asyncio.CancelledError) -> None:
        """Answer a call whose tool has cancelled its own task; raise the error if it was cancelled from outside."""
        if asyncio.current_task() in self._cancelled:
            raise error
        self._write(internal_error_message(message, error) + b"\n")

    def _cancel(self, call: asyncio.Task[None]) -> None:
        self._cancelled.add(call)
        # A task that is cancelled before it has begun does not run its cleanup: cancel it afterwards.
        call.get_loop().call_soon(call.cancel)

    def _end(self, call: PlainRequest) -> None:
        if call.id in self._unfinished:
            self._unfinished.discard(call.id)
            self._write(error_message(call.id, _CLOSED) + b"\n")
        del self._calls[str(call.id)]
        self._answered(call.id)
