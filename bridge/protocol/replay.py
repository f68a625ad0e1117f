"""Ids of the events of a call's stream, from which a client resumes it.

Clause: MCP 2025-11-25, Transports, "Resumability and Redelivery".
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from bridge.protocol.messages import error_message
from bridge.protocol.versions import INTERNAL_ERROR

NOT_STORED = "the events of this call are no longer stored: its outcome is unknown, and it was not run again"

_EVENT_ID = re.compile(r"(?P<entry>(?P<milliseconds>[0-9]{1,20})-(?P<number>[0-9]{1,20}))/(?P<stream>.*)")
_NUMBER = re.compile("0|-?[1-9][0-9]{0,17}")
_MAX_ENTRY_NUMBER = 2**64 - 1
"""Largest number in the id of an entry; Redis refuses commands with larger ones."""
_ERRORS = "surrogatepass"
"""An id may have lone surrogates, as any text in JSON."""
_GET_STREAM = "_GET_stream"
"""Stream in the official SDK's ids of events that belong to no call."""


class StreamPosition(NamedTuple):
    """Position of a client in the stream of a call."""

    entry: str
    """The last event that the client received."""
    stream: str
    """The id of the request, as text."""


def position_of(event_id: str) -> StreamPosition | None:
    """Parse the id of an event; None if it is malformed, or belongs to no call."""
    found = _EVENT_ID.fullmatch(event_id)
    if found is None or max(int(found["milliseconds"]), int(found["number"])) > _MAX_ENTRY_NUMBER:
        return None
    try:
        stream = unquote(found["stream"], errors=_ERRORS)
    except UnicodeDecodeError:
        return None
    return None if stream == _GET_STREAM else StreamPosition(found["entry"], stream)


def event_id_of(entry: str, stream_id: str) -> str:
    """Return the id of an event, which `position_of` parses."""
    return f"{entry}/{quoted(stream_id)}"


def quoted(stream_id: str) -> str:
    """Return a stream's id in ASCII, percent-encoded."""
    return stream_id if stream_id.isalnum() and stream_id.isascii() else quote(stream_id, safe="", errors=_ERRORS)


def order_of(entry: str) -> tuple[int, int]:
    """Return the order of an entry among those of its stream."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)


def outcome_unknown(stream_id: str, why: str) -> bytes:
    """Return the JSON-RPC error that ends the stream of a call whose events are lost."""
    # A stream has the text of its request's id: a text that could be a number was one.
    request = int(stream_id) if _NUMBER.fullmatch(stream_id) else stream_id
    return error_message(request, {"code": INTERNAL_ERROR, "message": why})
