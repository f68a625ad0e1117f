"""Responses to requests that are refused before they are read, and the probes that never are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.hosting.http.limits import MAX_HEADERS
from bridge.protocol.versions import INVALID_REQUEST, LIMIT_EXCEEDED
from bridge.server.http.probes import HEALTH_PATH, METHODS, READY_PATH

if TYPE_CHECKING:
    from bridge.hosting.http.limits import ConnectionLimits

_RETRY_SECONDS = 5
_PROBES = tuple(f"{method} {path} HTTP/1".encode() for method in METHODS for path in (HEALTH_PATH, READY_PATH))
_END_OF_HEAD = b"\r\n\r\n"
_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"%b"%b}}'


@dataclass(frozen=True, slots=True)
class Refusals:
    """Complete responses, behind which the connection is closed."""

    malformed: bytes
    too_many: bytes
    """For a connection over the limit."""
    too_long: bytes
    """For a head over its limits."""
    too_late: bytes
    """For a request that is not complete in time."""


def refusals(limits: ConnectionLimits) -> Refusals:
    """Make the responses of a server, which name its limits."""
    return Refusals(
        malformed=_refusal(b"400 Bad Request", b"this is not a valid HTTP request"),
        too_many=_refusal(
            b"503 Service Unavailable",
            b"too many connections; try again in %d seconds" % _RETRY_SECONDS,
            b"--max-connections",
            retry_seconds=_RETRY_SECONDS,
        ),
        too_long=_refusal(
            b"431 Request Header Fields Too Large",
            b"the head of a request has at most %d bytes and %d headers, trailers have at most as many"
            % (limits.max_header_bytes, MAX_HEADERS),
            b"--max-header-bytes",
        ),
        too_late=_refusal(
            b"408 Request Timeout",
            b"the request is incomplete: its head must arrive within %g seconds, its body without a pause of %g"
            % (limits.max_head_seconds, limits.max_body_pause_seconds),
        ),
    )


def is_probe(data: bytes) -> bool:
    """True for a complete probe request without further data.

    It is answered on connections over the limit, too: an unanswered probe restarts the process.
    """
    return data.startswith(_PROBES) and data.find(_END_OF_HEAD) == len(data) - len(_END_OF_HEAD)


def _refusal(status: bytes, message: bytes, limit: bytes | None = None, *, retry_seconds: int | None = None) -> bytes:
    data = [] if limit is None else [b'"limit":"%b"' % limit]
    code, retry = INVALID_REQUEST, b""
    if retry_seconds is not None:
        data.append(b'"retryAfterSeconds":%d' % retry_seconds)
        code, retry = LIMIT_EXCEEDED, b"retry-after: %d\r\n" % retry_seconds
    body = _ERROR % (code, message, b',"data":{%b}' % b",".join(data) if data else b"")
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, retry, len(body)) + body
