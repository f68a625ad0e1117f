"""JSON-RPC messages: JSON text to message and back.

Clauses: JSON-RPC 2.0, sections 4 and 5, as MCP restricts it (an id is an integer or a string, params are an object,
there are no batches).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic_core import from_json, to_json, to_jsonable_python

from bridge.errors import BridgeError
from bridge.protocol.versions import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from bridge.types import ValueBounds

if TYPE_CHECKING:
    from bridge.types import Json

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


class CallRefused(BaseException):
    """Ends a running call with a `ProtocolError`; a tool's ``except Exception`` does not catch it."""

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(str(error))
        self.error = error


def result_message(request: MessageId, result: bytes) -> bytes:
    """Return a JSON-RPC response, given the result as JSON."""
    if type(request) is int:  # most are
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request, result)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_as_json(request), result)


def result_beginning(request: MessageId) -> bytes:
    """Return the beginning of a JSON-RPC response, up to its result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % id_as_json(request)


def error_message(request: MessageId | None, error: Json) -> bytes:
    """Return a JSON-RPC error response; the id is None if it is not known."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (id_as_json(request), write_leniently(error))


def notification(method: str, params: Json | None = None) -> bytes:
    """Return a notification."""
    message: Json = {"jsonrpc": "2.0", "method": method}
    return write_leniently(message if params is None else {**message, "params": params})


def answer(request: MessageId | None, outcome: Json | ProtocolError) -> bytes:
    """Return the response to a request of the other side."""
    if isinstance(outcome, ProtocolError):
        error: Json = {"code": outcome.code, "message": outcome.message}
        return error_message(request, error if outcome.data is None else {**error, "data": outcome.data})
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_as_json(request), write_leniently(outcome))


class ErrorAnswer(bytes):
    """The text of a response that is an error.

    Attributes:
        code: Code of the error.
    """

    code: int

    @classmethod
    def of(cls, request: MessageId, error: ProtocolError) -> ErrorAnswer:
        """Write the response to a request."""
        written = cls(answer(request, error))
        written.code = error.code
        return written


def id_as_json(request: MessageId | None) -> bytes:
    """Return the id of a request, or the token of its progress, as JSON."""
    return b"%d" % request if type(request) is int else write_leniently(request)


def write_json(value: Any) -> bytes:
    """Return a value as JSON; numbers that are not finite become null.

    Raises:
        ValueError: It cannot be written, as a text with a lone surrogate, or an object of another type.
    """
    return to_json(value, inf_nan_mode="null")


def write_leniently(value: Any) -> bytes:
    """Return a value as JSON, like `write_json`, but write lone surrogates as escapes."""
    try:
        return write_json(value)
    except ValueError:
        finite = json.loads(json.dumps(value, default=to_jsonable_python), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":")).encode("ascii")


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
        value = from_json(text)
    except ValueError:
        # `from_json` refuses lone surrogates, byte order marks, and nesting deeper than about 200; `json` accepts them.
        if not text.strip():
            return None
        value = _read_leniently(text)
    if not isinstance(value, dict):
        raise MalformedMessageError(
            INVALID_REQUEST,
            "batches are not supported" if isinstance(value, list) else "a message must be an object",
        )
    message: Json = value
    if message.get("jsonrpc") != "2.0":
        raise MalformedMessageError(INVALID_REQUEST, "'jsonrpc' must be \"2.0\"")
    if "method" in message:
        _check_call(message)
    elif not is_response(message):
        raise MalformedMessageError(INVALID_REQUEST, "a message must have a method, or be the reply to a request")
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


def is_call(message: Any) -> TypeGuard[Json]:
    """True for a well-formed request or notification."""
    if type(message) is not dict or message.get("jsonrpc") != "2.0" or type(message.get("method")) is not str:
        return False
    has_id = "id" not in message or _is_id(message["id"])
    return has_id and (type(params := message.get("params")) is dict or params is None)


def is_response(message: Any) -> TypeGuard[Json]:
    """True for a well-formed response."""
    match message:
        case {"method": str()}:
            return False
        case {"jsonrpc": "2.0", "id": id_, "result": dict()} if message.get("error") is None:
            return _is_id(id_)
        case {"jsonrpc": "2.0", "error": {"code": int(), "message": str()}} if message.get("result") is None:
            # The id is null if the request could not be read; answering that with an error could loop forever.
            return message.get("id") is None or _is_id(message["id"])
    return False


def malformed_message_error(error: MalformedMessageError) -> bytes:
    """Return the JSON-RPC error response to a malformed message."""
    return answer(error.message_id, error)


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


def _is_id(value: object) -> bool:
    return type(value) is int or type(value) is str
