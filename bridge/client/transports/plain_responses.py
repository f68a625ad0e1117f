"""Responses to plain requests: their result, and the progress before it.

Everything else is left to the SDK's session. Validation has the SDK's outcome.

The response to a begun request is received without a task that waits for it:

begin ──> sent ─┬─> a usual result ──────────────────────────────> `_received`
                ├─> an error, events, a lost connection ──╮
                ╰─> `hand_over` ──────────────────────────┴──────> `_continued`: a task sends it "again"

For that task the request is an `OutgoingRequest` with `begun`: instead of sending it, the transport waits for the same
response. So only the usual is done here, and nothing that a task would do is done differently.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard, get_args

from mcp import MCPError
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from mcp_types.methods import SERVER_RESULTS
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from bridge.client.transports.channel import OutgoingRequest
from bridge.client.transports.limits import large_json
from bridge.wire.prompts import ReceivedMessages
from bridge.wire.resources import ReceivedContents
from bridge.wire.tools import ReceivedResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

    from bridge.client.transports.channel import ChannelEvents
    from bridge.client.transports.http_connections import HttpConnection
    from bridge.client.transports.http_responses import HttpResponse
    from bridge.client.transports.plain_requests import PlainRequest
    from bridge.types import Json
    from bridge.wire.received import Received

_PASSED_ON: dict[str, type[Received]] = {
    "tools/call": ReceivedResult,
    "resources/read": ReceivedContents,
    "prompts/get": ReceivedMessages,
}
"""Results that a gateway passes on, by method."""
_COLLECTED_BYTES = 16 * 1024
"""Maximum bytes that are parsed while the garbage collector may run; a longer text would start it many times."""


def result_in(text: bytes, request: PlainRequest) -> Json | None:
    """Return the result in the text of a response; None if the text is no response to the request.

    Raises:
        MCPError: The response is an error.
        ValidationError: The result is not valid MCP.
        ResponseTooLongError: The response has too many values.
    """
    part = _result_text(text, request.id)
    if part is not None:
        try:
            result = json_in(part, is_standard=True)
        except ValueError:
            pass  # the response has further members, or numbers that only some parsers read
        else:
            if type(result) is not dict:
                return None
            kind = _PASSED_ON.get(request.method) if request.is_passed_on else None
            return _valid(result if kind is None else kind.of(result, part), request)
    try:
        message = json_in(text)
    except ValueError:
        return None
    return result_in_message(message, request)


def result_in_message(message: Any, request: PlainRequest) -> Json | None:
    """Return the result in a response that was parsed; None if it is no response to the request.

    Raises:
        MCPError: The response is an error.
        ValidationError: The result is not valid MCP.
    """
    response = message if is_response(message, request) else _unusual_response(message, request)
    return None if response is None else result_of(response, request)


def result_of(message: Json, request: PlainRequest) -> Json:
    """Return the result of a well-formed response.

    Raises:
        MCPError: It is an error.
        ValidationError: The result is not valid MCP.
    """
    if (error := message.get("error")) is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    return _valid(message["result"], request)


def is_response(message: Any, request: PlainRequest) -> TypeGuard[Json]:
    """True for a well-formed response to a request."""
    match message:
        case {"method": _} | {"result": _, "error": _}:
            return False
        case {"jsonrpc": "2.0", "id": id_, "result": dict()}:
            return str(id_) == str(request.id)
        case {"jsonrpc": "2.0", "id": id_, "error": {"code": int(code), "message": str()}}:
            return str(id_) == str(request.id) and not isinstance(code, bool)
    return False


def _unusual_response(message: Any, request: PlainRequest) -> Json | None:
    """Response that the SDK would accept with an ID of its own, such as one with ``"method": null``; None otherwise."""
    try:
        parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValidationError:
        return None
    if not isinstance(parsed, JSONRPCResponse | JSONRPCError) or str(parsed.id) != str(request.id):
        return None
    return parsed.model_dump(by_alias=True, exclude_unset=True)


def progress_in(message: Any, request: PlainRequest) -> tuple[float, float | None, str | None] | None:
    """Return the progress of a request in a notification: amount, total and text; None if it is anything else."""
    match message:
        case {"jsonrpc": "2.0", "method": "notifications/progress", "params": dict(params)} if "id" not in message:
            progress, total, text = params.get("progress"), params.get("total"), params.get("message")
        case _:
            return None
    if params.get("progressToken") != request.id or request.on_progress is None or not _is_number(progress):
        return None
    return float(progress), float(total) if _is_number(total) else None, text if isinstance(text, str) else None


def _result_text(text: bytes, request_id: int) -> bytes | None:
    """Return the text of the result in a response that an official SDK has written; None in any other form."""
    beginning = b'{"jsonrpc":"2.0","id":%d,"result":' % request_id  # Python
    if text.startswith(beginning) and text.endswith(b"}"):
        return text[len(beginning) : -1]
    ending = b',"jsonrpc":"2.0","id":%d}' % request_id  # TypeScript
    if text.startswith(b'{"result":') and text.endswith(ending):
        return text[len(b'{"result":') : -len(ending)]
    return None


def json_in(text: bytes, *, is_standard: bool = False) -> Any:
    """Parse JSON; ``NaN`` and ``Infinity`` are numbers unless it has to be standard JSON.

    Raises:
        ResponseTooLongError: It has too many values.
        ValueError: It is not JSON.
    """
    parse = from_json if len(text) <= _COLLECTED_BYTES else large_json
    return parse(text, allow_inf_nan=not is_standard)


def _is_number(value: Any) -> TypeGuard[int | float]:
    """True for a number that a float can represent."""
    return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)


def _valid(result: Json, request: PlainRequest) -> Json:
    """Validate a result as the SDK's session does."""
    if request.method == "tools/call" and _is_of_texts(result, request.version in MODERN_PROTOCOL_VERSIONS):
        return result
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and ttl < 0:
        result = {**result, "ttlMs": 0}
    if (form := _form(request.method, request.version)) is not None:
        form.validate_python(result, by_name=False)  # as `validate_server_result`, which also writes the result
    if later := _later_fields(request.method, request.version) & result.keys():
        return {key: value for key, value in result.items() if key not in later}
    return result


def _is_of_texts(result: Json, is_modern: bool) -> bool:
    """True for a call's result with texts, and data: pydantic would take longer to validate it than the rest."""
    for key, value in result.items():
        match key:
            case "content":
                is_valid = type(value) is list and all(map(_is_text, value))
            case "isError":
                is_valid = type(value) is bool
            case "resultType":
                is_valid = is_modern and value == "complete"
            case "structuredContent" | "_meta":
                is_valid = type(value) is dict
            case _:
                is_valid = False
        if not is_valid:
            return False
    return "content" in result and ("resultType" in result or not is_modern)


def _is_text(block: Any) -> bool:
    return type(block) is dict and len(block) == 2 and block.get("type") == "text" and type(block.get("text")) is str  # noqa: PLR2004


@cache
def _form(method: str, version: str) -> TypeAdapter[Any] | None:
    """Form of a method's result; None for other methods."""
    form: Any = SERVER_RESULTS.get((method, version))
    return None if form is None else TypeAdapter(form)


@cache
def _later_fields(method: str, version: str) -> frozenset[str]:
    """Fields of a result that only later protocol versions have."""
    later = KNOWN_PROTOCOL_VERSIONS[KNOWN_PROTOCOL_VERSIONS.index(version) + 1 :]
    fields = [_fields(SERVER_RESULTS.get((method, each))) for each in (version, *later)]
    return frozenset().union(*fields) - fields[0] if fields[0] else frozenset()


def _fields(result_type: Any) -> frozenset[str]:
    """Names of a result's fields in JSON; of all its forms, if it has several."""
    models: tuple[type[BaseModel], ...] = get_args(result_type) or ((result_type,) if result_type else ())
    return frozenset(field.alias or name for model in models for name, field in model.model_fields.items())


class BegunRequest(ABC):
    """A request that was sent, or will be; its connection sets its response, as that of a future.

    Attributes:
        outgoing: The outcome of the request.
        request: The request.
        connection: The connection over which it was sent.
        events: The channel's events.
        began_at: Time of its beginning, in the event loop's time.
        read: Reads the result in a response; returns None if a task has to.
    """

    __slots__ = ("_response", "began_at", "connection", "events", "outgoing", "read", "request")

    request: PlainRequest
    connection: HttpConnection
    events: ChannelEvents
    read: Callable[[HttpResponse, PlainRequest], Json | None]

    def __init__(self) -> None:
        self.outgoing = OutgoingRequest()
        self.began_at = asyncio.get_running_loop().time()
        self._response: asyncio.Future[HttpResponse] | None = None

    @abstractmethod
    def _received(self, result: Json) -> bool:
        """Receive the result, at most once; return False to leave it to a task."""

    @abstractmethod
    def _continued(self) -> None:
        """Continue the request in a task, from a callback of the event loop."""

    @property
    def response(self) -> asyncio.Future[HttpResponse]:
        """The response, for the task that continues the request."""
        assert self._response is not None, "it was handed over"
        return self._response

    def hand_over(self) -> None:
        """Continue the request in a task, from the next turn of the event loop on."""
        if self._response is None:
            self.outgoing.begun = self
            loop = asyncio.get_running_loop()
            self._response = loop.create_future()
            loop.call_soon(self._continued)

    # --- as a future, for the connection -----------------------------------------------------------------------------

    def done(self) -> bool:
        """Return True if a task has given up waiting."""
        return self._response is not None and self._response.done()

    def set_result(self, response: HttpResponse) -> None:
        """Set the response."""
        if self._response is None:
            with suppress(Exception):  # raised again in the task
                result = self.read(response, self.request)
                if result is not None and self._received(result):
                    return
            self.hand_over()
        self.response.set_result(response)

    def set_exception(self, error: Exception) -> None:
        """Set the error of the transport."""
        self.hand_over()
        self.response.set_exception(error)


async def no_progress(progress: float, total: float | None, message: str | None) -> None:
    """Receive no progress: it comes in events, which a task reads."""
    raise AssertionError((progress, total, message))
