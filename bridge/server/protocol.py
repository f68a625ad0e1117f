"""Protocol versions, error codes, JSON-RPC messages.

The protocol's own errors, and its two eras, as plain values: nothing of the SDK.

JSON-RPC 2.0, section 5.1, and MCP 2026-07-28, "Error Codes".

JSON-RPC messages as text: read with care, and the errors that answer what cannot be read. Pure: no I/O, no SDK.

JSON-RPC 2.0, sections 4 and 5, as MCP narrows it: an id is an integer or a string, params are an object, and there are
no batches.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.errors import BridgeError
from bridge.types import ValueBounds

if TYPE_CHECKING:
    from bridge.types import Json

PARSE_ERROR = -32700

INVALID_REQUEST = -32600

METHOD_NOT_FOUND = -32601

INVALID_PARAMS = -32602

INTERNAL_ERROR = -32603

MISSING_CAPABILITY = -32021

URL_ELICITATION_REQUIRED = -32042

REQUEST_CANCELLED = -32800

CONNECTION_CLOSED = -32000
"""The code by which the SDK answers calls that run when a connection ends."""

LIMIT_EXCEEDED = -32005
"""More is asked for than there is room for now; the error's data says in ``retryAfterSeconds`` when to try again."""

HTTP_STATUS = {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400, MISSING_CAPABILITY: 400}
"""With which HTTP status an error answers in the modern era; every other one of a handler with 200."""

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Where a request of the modern era says, in ``_meta``, what its client can do."""

PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Where a request of the modern era says, in ``_meta``, which revision it speaks."""

CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
"""Where a request of the modern era may say, in ``_meta``, which client sent it."""

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
"""Where a result of the modern era says, in ``_meta``, which server made it."""

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
"""Where a request of the modern era says, in ``_meta``, from which severity on it wants log messages."""

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with a handshake, oldest first."""

MODERN_VERSIONS = frozenset({"2026-07-28"})
"""The revisions in which every request stands alone; all others begin with a handshake."""

MessageId = int | str
"""What identifies a request."""

BOUNDED_BYTES = 4 * 1024 * 1024
"""Length of a message up to which `value_bounds` does not grow."""

_MAX_CONTAINERS = 35_000
_MAX_ENTRIES = 200_000

MAX_BYTES_OF_A_VALUE = BOUNDED_BYTES // _MAX_CONTAINERS + 1
"""Maximum bytes for which one value counts, where all that `value_bounds` allows count for the length of a message."""

_LAST_ID = re.compile(
    # Before the one brace that closes the message no string is open, and nothing deeper: this is the message's own.
    rb"""[{,]\s*"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")(?:\s*,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*")*\s*\}\s*\Z"""
)


class ProtocolError(BridgeError):
    """A request that is answered by a JSON-RPC error instead of a result.

    Attributes:
        code: The error's code.
        message: What is wrong, fit for the client.
        data: More about it, as JSON; None where there is no more.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class CallRefused(BaseException):
    """Ends a running call with a `ProtocolError`; a tool's ``except Exception`` does not see it."""

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(str(error))
        self.error = error


def result_message(request: MessageId, result: bytes) -> bytes:
    """A JSON-RPC response with a result that is JSON already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_id_as_json(request), result)


def error_message(request: MessageId, error: Json) -> bytes:
    """A JSON-RPC response with an error."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_id_as_json(request), to_json(error))


def write_result(result: Json) -> bytes:
    """A result as JSON, which has no words for numbers that are not finite; the SDK says null, too."""
    return to_json(result, inf_nan_mode="null")


def _id_as_json(request: MessageId) -> bytes:
    return b"%d" % request if type(request) is int else to_json(request)


class MalformedMessageError(ProtocolError):
    """Text that is no message.

    Attributes:
        message_id: Which request is to be told; None where that cannot be known.
    """

    def __init__(self, code: int, message: str, message_id: MessageId | None = None) -> None:
        super().__init__(code, message)
        self.message_id = message_id


def value_bounds(max_bytes: int) -> ValueBounds:
    """Limits of the numbers of values in a message: those for 4 MiB, and in proportion where longer ones are allowed.

    A message within those for 4 MiB takes less than 40 MiB of memory, and each step of its work less than 100 ms.
    A shorter one of many values may take as much; see `MAX_BYTES_OF_A_VALUE`.

    Args:
        max_bytes: The limit of a message's length.
    """
    times = max(1.0, max_bytes / BOUNDED_BYTES)
    return ValueBounds(containers=int(_MAX_CONTAINERS * times), entries=int(_MAX_ENTRIES * times))


def too_many_values(excess: str) -> str:
    """The error message for a JSON-RPC message outside of its bounds.

    Args:
        excess: As `ValueBounds.excess` says.
    """
    return f"the message has {excess}; send fewer at once, or raise --max-request-bytes of bridge serve over 4 MiB"


def read_message(text: bytes) -> Json | None:
    """A message: request, notification, result or error.

    Args:
        text: One JSON text in UTF-8; a byte order mark is forgiven.

    Returns:
        The message, of the right shape; None for blank text.

    Raises:
        MalformedMessageError: The text is no JSON, or the JSON is no message.
    """
    try:
        message = from_json(text)
    except ValueError:
        # It refuses what others accept: lone surrogates, byte order marks, and nesting deeper than about 200.
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
    """Which request a message is of which only the ends are known; None where they do not tell.

    Args:
        beginning: How its text begins.
        end: How its text ends.
    """
    try:
        known = from_json(beginning, allow_partial=True)
        if not isinstance(known, dict) or not known.keys().isdisjoint({"result", "error"}):
            return None
        if "id" in known and next(reversed(known)) != "id":  # as the last it may be half of one
            found = known["id"]
        else:
            last = _LAST_ID.search(end)
            found = None if last is None else from_json(last[1])
    except ValueError:
        return None
    return found if _is_id(found) else None


def is_request(message: Json) -> bool:
    """Whether a message waits for an answer."""
    return "method" in message and "id" in message


def malformed_message_error(error: MalformedMessageError) -> bytes:
    """The answer to text that is no message."""
    wire = {"code": error.code, "message": error.message}
    # Unlike pydantic's, this writes an id that has a lone surrogate, and all in ASCII.
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
        # Its id is null where the client could not read what it answers. To object to that could go on forever.
        right = _is_error(message["error"]) and (message.get("id") is None or _is_id(message["id"]))
    else:
        right = isinstance(message.get("result"), dict) and _is_id(message.get("id"))
    if not right:
        raise MalformedMessageError(INVALID_REQUEST, "a message must have a method, or be the reply to a request")


def _is_error(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("code"), int) and isinstance(value.get("message"), str)


def _is_id(value: object) -> bool:
    return type(value) is int or type(value) is str
