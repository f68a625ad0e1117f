"""Protocol versions, error codes and JSON-RPC messages, without I/O and without the SDK.

Clauses: JSON-RPC 2.0, sections 4 and 5, as MCP restricts it (an id is an integer or a string, params are an object,
there are no batches); MCP 2026-07-28, "Error Codes".
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.errors import BridgeError
from bridge.text import clip
from bridge.types import ValueBounds
from bridge.wire.received import Received
from bridge.wire.tasks import REQUIRED_CAPABILITIES, TASKS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
URL_ELICITATION_REQUIRED = -32042
REQUEST_CANCELLED = -32800

CONNECTION_CLOSED = -32000
"""Code of the SDK's response to calls that run when a connection ends."""
LIMIT_EXCEEDED = -32005
"""Code of errors about limits; ``retryAfterSeconds`` in their data is the time after which to try again."""
HTTP_STATUS = {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400, HEADER_MISMATCH: 400, MISSING_CAPABILITY: 400}
"""HTTP status of errors by code, in the modern era; all others have 200."""
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Key in ``_meta`` of a modern request: the client's capabilities."""
PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Key in ``_meta`` of a modern request: the protocol version."""
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
"""Key in ``_meta`` of a modern request: the client's name and version."""
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
"""Key in ``_meta`` of a modern request: the minimum severity of log messages."""
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions of the handshake era, oldest first."""
MODERN_VERSIONS = frozenset({"2026-07-28"})
"""Versions of the modern era, in which requests are independent of one another."""
MessageId = int | str
"""Id of a request."""
BOUNDED_BYTES = 4 * 1024 * 1024
"""Length of a message up to which `value_bounds` does not grow."""

_MAX_CONTAINERS = 35_000
_MAX_ENTRIES = 200_000

_LAST_ID = re.compile(
    # The id before the brace that closes the message is the message's own, and not one within its params.
    rb"""[{,]\s*"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")(?:\s*,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*")*\s*\}\s*\Z"""
)


class ProtocolError(BridgeError):
    """A request is answered by a JSON-RPC error.

    Attributes:
        code: Code of the error.
        message: Message for the client.
        data: Further JSON data; None for none.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def client_name(params: Mapping[str, Any]) -> str | None:
    """Name of the client program in the parameters of ``initialize``, or of a modern request; cut, since it is foreign.

    None without one.
    """
    meta = params.get("_meta")
    info = params.get("clientInfo") or (meta.get(CLIENT_INFO_KEY) if isinstance(meta, dict) else None)
    name = info.get("name") if isinstance(info, dict) else None
    return clip(name) if isinstance(name, str) and name else None


def missing_tasks_extension(what: str) -> ProtocolError:
    """Return the error for a client that does not support tasks; ``what`` needs them."""
    message = f"{what} needs a client that declares the extension {TASKS_EXTENSION!r} of version 2026-07-28"
    return ProtocolError(MISSING_CAPABILITY, message, REQUIRED_CAPABILITIES)


class CallRefused(BaseException):
    """Ends a running call with a `ProtocolError`; a tool's ``except Exception`` does not catch it."""

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(str(error))
        self.error = error


def result_message(request: MessageId, result: bytes) -> bytes:
    """Return a JSON-RPC response, given the result as JSON."""
    if type(request) is int:  # most are
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request, result)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_id_as_json(request), result)


def result_beginning(request: MessageId) -> bytes:
    """Return the beginning of a JSON-RPC response, up to its result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % _id_as_json(request)


def error_message(request: MessageId, error: Json) -> bytes:
    """Return a JSON-RPC error response."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_id_as_json(request), to_json(error))


def write_result(result: Json) -> bytes:
    """Write a result as JSON; numbers that are not finite become null, as by the SDK."""
    if isinstance(result, Received):
        return result.written()
    return to_json(result, inf_nan_mode="null")


def _id_as_json(request: MessageId) -> bytes:
    return b"%d" % request if type(request) is int else to_json(request)


class MalformedMessageError(ProtocolError):
    """A text is not a valid message.

    Attributes:
        message_id: Id of the request; None if it cannot be determined.
    """

    def __init__(self, code: int, message: str, message_id: MessageId | None = None) -> None:
        super().__init__(code, message)
        self.message_id = message_id


def value_bounds(max_bytes: int) -> ValueBounds:
    """Return the limits of the numbers of values in a message, which grow with its maximum length from 4 MiB on.

    A message within the limits for 4 MiB takes less than 40 MiB of memory, and each step of its work less than 100 ms.
    A shorter one of many values may take as much.
    """
    times = max(1.0, max_bytes / BOUNDED_BYTES)
    return ValueBounds(containers=int(_MAX_CONTAINERS * times), entries=int(_MAX_ENTRIES * times))


def too_many_values(excess: str) -> str:
    """Return the error message for a message with too many values, given the result of `ValueBounds.excess`."""
    return f"the message has {excess}; send fewer at once, or raise --max-request-bytes of bridge serve over 4 MiB"


def read_message(text: bytes) -> Json | None:
    """Parse a message: request, notification, result or error.

    Args:
        text: One JSON text in UTF-8; a byte order mark is ignored.

    Returns:
        The validated message; None for blank text.

    Raises:
        MalformedMessageError: The text is not JSON, or not a message.
    """
    try:
        message = from_json(text)
    except ValueError:
        # `from_json` refuses lone surrogates, byte order marks, and nesting deeper than about 200; `json` accepts them.
        if not text.strip():
            return None
        message = _read_leniently(text)
    if not isinstance(message, dict):
        raise MalformedMessageError(
            INVALID_REQUEST,
            "batches are not supported" if isinstance(message, list) else "a message must be an object",
        )
    if message.get("jsonrpc") != "2.0":
        raise MalformedMessageError(INVALID_REQUEST, "'jsonrpc' must be \"2.0\"")
    if "method" in message:
        _check_call(message)
    else:
        _check_reply(message)
    return message


def id_of_request(beginning: bytes, end: bytes) -> MessageId | None:
    """Return the id of a request of which only both ends are known; None if it cannot be determined."""
    try:
        known = from_json(beginning, allow_partial=True)
        if not isinstance(known, dict) or not known.keys().isdisjoint({"result", "error"}):
            return None
        if "id" in known and next(reversed(known)) != "id":  # the last value may be incomplete
            found = known["id"]
        else:
            last = _LAST_ID.search(end)
            found = None if last is None else from_json(last[1])
    except ValueError:
        return None
    return found if _is_id(found) else None


def is_request(message: Json) -> bool:
    """True for a message that needs a response."""
    return "method" in message and "id" in message


def malformed_message_error(error: MalformedMessageError) -> bytes:
    """Return the JSON-RPC error response to a malformed message."""
    wire = {"code": error.code, "message": error.message}
    # Unlike pydantic's writer, `json` can write an id with a lone surrogate, in ASCII.
    return json.dumps({"jsonrpc": "2.0", "id": error.message_id, "error": wire}, separators=(",", ":")).encode("ascii")


def _read_leniently(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8-sig"))
    except RecursionError:
        raise MalformedMessageError(PARSE_ERROR, "the JSON is nested too deeply") from None
    except UnicodeDecodeError:
        raise MalformedMessageError(PARSE_ERROR, "the text is not UTF-8") from None
    except ValueError as error:
        raise MalformedMessageError(PARSE_ERROR, f"the text is not JSON: {error}") from None


def _check_call(message: Json) -> None:
    if not isinstance(message["method"], str):
        raise MalformedMessageError(INVALID_REQUEST, "'method' must be a string")
    if "id" in message and not _is_id(message["id"]):
        raise MalformedMessageError(INVALID_REQUEST, "'id' must be an integer or a string")
    if not isinstance(message.get("params"), dict | None):
        raise MalformedMessageError(INVALID_PARAMS, "'params' must be an object", message.get("id"))


def _check_reply(message: Json) -> None:
    if "error" in message:
        # The id is null if the client could not read the request; answering that with an error could loop forever.
        right = _is_error(message["error"]) and (message.get("id") is None or _is_id(message["id"]))
    else:
        right = isinstance(message.get("result"), dict) and _is_id(message.get("id"))
    if not right:
        raise MalformedMessageError(INVALID_REQUEST, "a message must have a method, or be the reply to a request")


def _is_error(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("code"), int) and isinstance(value.get("message"), str)


def _is_id(value: object) -> bool:
    return type(value) is int or type(value) is str
