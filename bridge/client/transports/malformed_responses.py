"""Responses over stdio that cannot be parsed, such as those with half a surrogate pair or very deep nesting.

The request of such a response is found without parsing it, so that its caller need not wait until a timeout.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_ID = rb'"id"\s*:\s*"?(\d{1,18})"?'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_MEMBER = rb'"(?:result|error)"\s*:'
_HEAD = re.compile(rb"\s*\{\s*(?:%b\s*,\s*%b|%b\s*,\s*%b)\s*,\s*%b" % (_VERSION, _ID, _ID, _VERSION, _MEMBER))
_TAIL = re.compile(rb",\s*(?:%b\s*,\s*%b|%b\s*,\s*%b)\s*\}\s*\Z" % (_VERSION, _ID, _ID, _VERSION))
_RESPONSE = re.compile(rb"\s*\{\s*(?:(?:%b|%b)\s*,\s*){0,2}%b" % (_VERSION, _ID, _MEMBER))
_POSITION = re.compile(r" at line \d+ column \d+")
_TAIL_BYTES = 200
_MAX_REASON_CHARS = 200


def looks_like_response(line: bytes) -> bool:
    """True if a line begins as a response of JSON-RPC, in any order of its members."""
    return _RESPONSE.match(line) is not None


def response_id(line: bytes, waiting: AbstractSet[int]) -> int | None:
    """Return the ID of the request that a line responds to.

    Args:
        line: A line that `looks_like_response`.
        waiting: IDs of the requests without a response.

    Returns:
        The ID that stands before or after the result, or else the only one that waits; None if it is unknown.
    """
    match = _HEAD.match(line) or _TAIL.search(line[-_TAIL_BYTES:])
    if match is not None:
        request_id = int(match[1] or match[2])
        return request_id if request_id in waiting else None
    return next(iter(waiting)) if len(waiting) == 1 else None


def reason_of(error: ValueError) -> str:
    """Describe an error of the parser, without the text that was parsed and the position, which depends on IDs."""
    if isinstance(error, ValidationError):
        reason = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
    else:
        reason = str(error)
    return " ".join(_POSITION.sub("", reason).split())[:_MAX_REASON_CHARS]
