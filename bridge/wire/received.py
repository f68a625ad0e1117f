"""Results of other servers with the text that they were read from, which a gateway passes on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from pydantic_core import to_json

from bridge.types import Json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
"""Key in ``_meta`` of a modern result: the server's name and version."""


_RESOURCE = b'"resource'
_ESCAPED_LETTER = re.compile(rb"\\u00[67]")


def own_meta(wire: Mapping[str, Any]) -> Json:
    """Return ``_meta`` of a received result, without the name of the server that the connection is to."""
    meta = wire.get("_meta")
    return {key: meta[key] for key in meta if key != SERVER_INFO_KEY} if isinstance(meta, dict) else {}


class Received(Json):
    """A result of another server, with the text that it was read from.

    A gateway passes this text on, and reads the result only for those who look at it (`ToolExecutionResult.received`).
    """

    __slots__ = ("text",)

    BODY: ClassVar[frozenset[str]] = frozenset()
    """Members that are passed on, beside ``_meta``."""
    OWN: ClassVar[frozenset[str]] = frozenset({"resultType", "_meta"})
    """Members that belong to the connection to the server, and can be cut out of the text."""

    text: bytes | None
    """JSON of the result, without ``NaN`` and ``Infinity``; None if it is not known, or was changed."""

    @classmethod
    def of(cls, result: Json, text: bytes | None = None) -> Self:
        """Return a result with its text; a received result as it is."""
        if isinstance(result, cls):
            return result
        received = cls(result)
        received.text = text
        return received

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.text = None

    def passed_on(self) -> Received:
        """Return a copy for a client, without the members that belong to the connection to the server.

        These are the type of the result, the server's name in ``_meta``, and how long the client may keep it.
        """
        copy = type(self)(self)
        own = {key: copy.pop(key) for key in self if key not in self.BODY}
        copy.text = None if self.text is None else self._body(own)
        meta = own.get("_meta")
        if isinstance(meta, dict) and meta and (len(meta) > 1 or SERVER_INFO_KEY not in meta):  # usually only a name
            copy["_meta"] = own_meta(own)
        return copy

    def written(self) -> bytes:
        """Return its JSON: the received text with this result's type and metadata, or all of it written anew."""
        if self.text is None:
            return to_json(self, inf_nan_mode="null")
        own = {key: value for key, value in self.items() if key not in self.BODY}
        return b"".join((self.text, b",", to_json(own, inf_nan_mode="null")[1:])) if own else self.text + b"}"

    def may_have_resources(self) -> bool:
        """Return True if the text may have a member or type that begins with ``resource``, also one that is escaped.

        The text decides, not the result: of two members with the same name, a client may read the other one.
        """
        assert self.text is not None, "it is known"
        if _RESOURCE in self.text:
            return True
        return self.text.find(b"\\") >= 0 and _ESCAPED_LETTER.search(self.text) is not None

    def ended(self, members: bytes) -> bytes | None:
        """Return its JSON with the text of other members for its type and metadata; None if its text is not known."""
        return None if self.text is None else b"".join((self.text, members, b"}"))

    def _body(self, own: Json) -> bytes | None:
        """Cut the members of a protocol from the beginning and end of the text, and its closing brace.

        Returns:
            None if they are others, or stand elsewhere, or the text has line breaks, which end a message over stdio and
            in event streams.
        """
        text = self.text
        if text is None or text.find(b"\n") >= 0 or text.find(b"\r") >= 0:  # "in" takes three times as long
            return None
        if not own:
            return text[:-1]
        if not own.keys() <= self.OWN:
            return None
        members = to_json(own)
        if text.endswith(ending := b"," + members[1:]):
            return text[: -len(ending)]
        if text.startswith(beginning := members[:-1] + b","):
            return b"{" + text[len(beginning) : -1]
        return _between(text, [*self], own)


def _between(text: bytes, names: list[str], own: Json) -> bytes | None:
    """Return a text without members that stand before and after others, and its closing brace; None if they do not."""
    first = next((i for i, name in enumerate(names) if name not in own), 0)
    before = to_json({name: own[name] for name in names[:first]})[:-1] + b","
    after = b"," + to_json({name: own[name] for name in names[first:] if name in own})[1:]
    if not (text.startswith(before) and text.endswith(after)):
        return None
    return b"".join((b"{", memoryview(text)[len(before) : -len(after)]))


def write_result(result: Json) -> bytes:
    """Write a result as JSON; numbers that are not finite become null, as by the SDK."""
    if isinstance(result, Received):
        return result.written()
    return to_json(result, inf_nan_mode="null")
