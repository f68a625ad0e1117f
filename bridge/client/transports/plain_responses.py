"""Responses to plain requests: JSON, or an event stream with progress and the response.

Everything else is left to the SDK's transport, from the first event that is not plain.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, get_args

import httpx2
from mcp import MCPError
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from mcp_types.methods import SERVER_RESULTS
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from bridge.client.transports.event_stream import BLANK_LINE, MAX_BLANK_LINE_BYTES, fields_of
from bridge.client.transports.http_client import UNAUTHORIZED
from bridge.client.transports.limits import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    SUCCESS,
    decompressed,
    large_json,
    media_type,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from bridge.client.transports.channel import ProgressListener
    from bridge.client.transports.http_connections import HttpResponse, ResponseStream
    from bridge.types import Json

DRAIN_SECONDS = 1.0
"""Seconds that a server may take to end an event stream after its response; then the connection is closed."""

_ENCODING = b"content-encoding"
_NOTHING = object()
_FORBIDDEN = 403
_ACCEPTED = 202
_REDIRECTS = range(300, 400)


class PlainRequest(NamedTuple):
    """Request that is sent."""

    id: int
    """JSON-RPC ID, and token of its progress notifications."""
    method: str
    """MCP method."""
    version: str
    """Protocol version of its session."""
    on_progress: ProgressListener | None
    """Receives progress notifications."""


async def read_events(response: HttpResponse, stream: ResponseStream, request: PlainRequest) -> Json | None:
    """Read an event stream until its response.

    Returns:
        The message with the response; None if the SDK must read the stream from the first event that is neither a
        progress notification nor the response.
    """
    is_stream = media_type(response.header(b"content-type").decode("latin-1")) == "text/event-stream"
    if not is_stream or response.status not in SUCCESS or response.status == _ACCEPTED or response.header(_ENCODING):
        return None
    text, searched, last_id = bytearray(), 0, b""
    while len(text) <= LARGE_BYTES and (chunk := await stream.next()) is not None:
        text += chunk
        while (blank := BLANK_LINE.search(text, searched)) is not None:
            fields = fields_of(bytes(text[: blank.start()]))
            message: Any = _plain_message(fields)
            if _answers(message, request):
                stream.drain(DRAIN_SECONDS)
                return message
            if message is not _NOTHING and not await _is_progress(message, request):
                stream.put_back(_resumable(last_id, text))
                return None
            last_id = fields.get(b"id", last_id)
            del text[: blank.end()]
            searched = 0
        searched = max(0, len(text) - MAX_BLANK_LINE_BYTES)
    stream.put_back(_resumable(last_id, text))
    return None


def _plain_message(fields: dict[bytes, bytes]) -> Any:
    """Message of an event; `_NOTHING` for an event without one, and None for an event that the SDK must read."""
    if fields.keys() - {b"data", b"event", b"id"} or fields.get(b"event", b"message") != b"message":
        return None
    if not (data := fields.get(b"data")):
        return _NOTHING
    try:
        return from_json(data)
    except ValueError:
        return None


def _resumable(last_id: bytes, text: bytearray) -> bytes:
    """Text of an event stream after the event with this ID."""
    return (b"id: " + last_id + b"\ndata:\n\n" if last_id else b"") + text


async def _is_progress(message: Any, request: PlainRequest) -> bool:
    """Report progress; False if the message is anything else."""
    match message:
        case {"jsonrpc": "2.0", "method": "notifications/progress", "params": dict(params)} if "id" not in message:
            progress, total, text = params.get("progress"), params.get("total"), params.get("message")
        case _:
            return False
    if params.get("progressToken") != request.id or request.on_progress is None or not _is_number(progress):
        return False
    await request.on_progress(
        float(progress), float(total) if _is_number(total) else None, text if isinstance(text, str) else None
    )
    return True


def _is_number(value: Any) -> TypeGuard[int | float]:
    """True for a number that a float can represent."""
    return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)


def parsed_json(response: HttpResponse, request: PlainRequest) -> Json | None:
    """Message in the content that answers a request; None if the SDK must read it.

    Raises:
        ResponseTooLongError: It is too long, or has too many values.
        httpx2.RemoteProtocolError: It cannot be decompressed.
    """
    if response.status == _ACCEPTED:
        return None
    content = response.content
    if encoding := response.header(_ENCODING):
        content = decompressed(content, encoding.decode("latin-1"), MAX_MESSAGE_BYTES)
    try:
        message = from_json(content) if len(content) <= LARGE_BYTES else large_json(content)
    except ValueError:
        return None
    return message if _answers(message, request) else _unusual_response(message, request)


def _unusual_response(message: Any, request: PlainRequest) -> Json | None:
    """Response that the SDK would accept with an ID of its own, such as one with ``"method": null``; None otherwise."""
    try:
        parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValidationError:
        return None
    if not isinstance(parsed, JSONRPCResponse | JSONRPCError) or str(parsed.id) != str(request.id):
        return None
    return parsed.model_dump(by_alias=True, exclude_unset=True)


def _answers(message: Any, request: PlainRequest) -> TypeGuard[Json]:
    """True for a well-formed response to a request."""
    match message:
        case {"method": _} | {"result": _, "error": _}:
            return False
        case {"jsonrpc": "2.0", "id": id_, "result": dict()}:
            return str(id_) == str(request.id)
        case {"jsonrpc": "2.0", "id": id_, "error": {"code": int(code), "message": str()}}:
            return str(id_) == str(request.id) and not isinstance(code, bool)
    return False


def result_of(message: Json, request: PlainRequest) -> Json:
    """Result in a response.

    Raises:
        MCPError: It is an error.
        ValidationError: The result is not valid MCP.
    """
    if (error := message.get("error")) is not None:
        raise MCPError(error["code"], error["message"], error.get("data"))
    return _valid(message["result"], request)


def _valid(result: Json, request: PlainRequest) -> Json:
    """Validate a result as the SDK's session does."""
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and ttl < 0:
        result["ttlMs"] = 0
    if (form := _form(request.method, request.version)) is not None:
        form.validate_python(result, by_name=False)  # as `validate_server_result`, which also writes the result
    if later := _later_fields(request.method, request.version) & result.keys():
        return {key: value for key, value in result.items() if key not in later}
    return result


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


def is_challenge(response: HttpResponse) -> bool:
    """True for a request for credentials, or for others: the server ran nothing."""
    is_step_up = response.status == _FORBIDDEN and bool(response.header(b"www-authenticate"))
    return response.status == UNAUTHORIZED or is_step_up


def for_sdk(response: HttpResponse) -> httpx2.Response:
    """Response for the SDK's transport."""
    stream = response.stream or httpx2.ByteStream(response.content)
    return httpx2.Response(response.status, headers=response.headers, stream=stream)
