"""Repeated bodies: a body that differs from an earlier one by its id alone is not parsed again.

A client that reads a resource again, or fetches a list again, sends the same bytes with another id. The parser would
return the same message with that id, so that it is enough to parse the first body, and to check that it is plain.
Bodies with arguments are excluded, since the next ones have other arguments. Everything that depends on the caller or
on the state of the server is decided for every request.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic_core import from_json

if TYPE_CHECKING:
    from bridge.types import Json

_MAX_BYTES = 2048
_MAX_DIGITS = 15
_ID = re.compile(rb'"id"\s*:\s*([0-9]+)')
_ZERO = ord("0")


class RepeatedBody:
    """A body of which only the id may change.

    Args:
        before: The bytes before the id.
        after: The bytes after the id.
        message: The message with any id.
        digits: The number of digits of the id. Requests with the same head have bodies of the same length.
    """

    __slots__ = ("_after", "_before", "_end", "_length", "_message", "_start")

    def __init__(self, before: bytes, after: bytes, message: Json, digits: int) -> None:
        self._before = before
        self._after = after
        self._message = message
        self._start = len(before)
        self._end = self._start + digits
        self._length = self._end + len(after)

    def message_in(self, body: bytes) -> Json | None:
        """Return the message of a body, its params shared with those of other bodies; None for any other body."""
        if len(body) != self._length or not (body.startswith(self._before) and body.endswith(self._after)):
            return None
        digits = body[self._start : self._end]
        if not digits.isdigit() or (digits[0] == _ZERO and len(digits) > 1):  # JSON has no leading zeros
            return None
        return {**self._message, "id": int(digits)}

    @classmethod
    def of(cls, body: bytes, message: Json) -> RepeatedBody | None:
        """Prepare for the repetition of a body; None for one that is unlikely to be repeated.

        Args:
            body: The body.
            message: The plain request that was parsed from it.
        """
        if len(body) > _MAX_BYTES or "arguments" in message["params"] or type(message["id"]) is not int:
            return None
        found = _ID.search(body)
        if found is None or len(found[1]) > _MAX_DIGITS or int(found[1]) != message["id"]:
            return None
        before, after = body[: found.start(1)], body[found.end(1) :]
        other = {**message, "id": message["id"] + 1}
        # The proof that these digits are the id, and not a part of a text or of another member.
        if from_json(b"%b%d%b" % (before, other["id"], after)) != other:
            return None
        return cls(before, after, message, len(found[1]))
