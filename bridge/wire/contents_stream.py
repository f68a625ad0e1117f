"""Contents of a resource that are passed on while they are received, without being held.

    {"jsonrpc":"2.0","id":7,"result":{"ttlMs":0,"contents":[{"uri":"a:b","text":"…"}]}}
                                                 ╰───────── passed on ──────────╯       with other URIs
    {"jsonrpc":"2.0","id":7,"result":{"ttlMs":0,"contents":[]}}                         kept, and read at the end

The text is checked as it passes: it is JSON (RFC 8259) in UTF-8, of limited depth and with a limited number of values.
Long strings are searched, and never become Python strings.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

from pydantic_core import from_json, to_json

from bridge.errors import WireError
from bridge.wire.resources import ReceivedContents

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.types import Json, ValueBounds

MAX_DEPTH = 128
"""Maximum objects and arrays within each other."""
MAX_KEPT_BYTES = 64 * 1024
"""Maximum bytes of a message without its contents."""
MAX_NAME_BYTES = 8 * 1024
"""Maximum bytes of a URI, and of a name in contents, as JSON."""
MAX_NUMBER_BYTES = 4300
"""Maximum bytes of a number, since parsers of many clients read no longer one."""

_PLAIN_ESCAPE = rb"u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
_PAIR = rb"[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = rb'\\(?:["\\/bfnrt]|' + _PLAIN_ESCAPE + rb"|" + _PAIR + rb"))"
_MAX_ESCAPE_BYTES = 12
_CHARS = re.compile(rb'(?:[^"\\\x00-\x1f]++|' + _ESCAPE + rb")*")
"""Characters of a string. No surrogate stands alone, as in the parsers of most languages.

A possessive quantifier around alternatives matches too little before Python 3.11.5 (python/cpython#106052).
"""
_UNUSUAL = re.compile(rb'\\(?!["/bfnrt]|' + _PLAIN_ESCAPE + rb"))")
"""An escape that is not complete or not simple, in a text without escaped backslashes."""
_CONTROLS = bytes(range(0x20))
_LONG_BYTES = 2048
"""Strings from this length on are searched instead of matched, in a fifth of the time."""
_TOKEN = re.compile(rb'[ \t\r\n]++|[][{}:,"]|[-+.0-9A-Za-z]++')
_SCALAR = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")

_ROOT, _RESULT, _CONTENTS, _ITEM = 1, 2, 3, 4
"""Depths: within the message, its result, the contents, and one of them."""

# What may come next:
_VALUE, _FIRST_VALUE, _NAME, _FIRST_NAME, _COLON, _COMMA, _NOTHING = range(7)
_MARKS = {b"{", b"}", b"[", b"]", b":", b","}
_CLOSERS = {b"}": (b"{", _FIRST_NAME), b"]": (b"[", _FIRST_VALUE)}
_KINDS = {b"uri": b'"', b"text": b'"n', b"blob": b'"n', b"mimeType": b'"n', b"_meta": b"{n"}
"""First characters of the values of members of contents; "n" is null."""
_BODIES = {b"text", b"blob"}


class StreamedContents(ReceivedContents):
    """A ``ReadResourceResult`` whose contents were passed on already; its text is what follows them."""

    __slots__ = ()

    def passed_on(self) -> StreamedContents:
        """Return a copy for a client, without the members that belong to the connection to the server."""
        copy = StreamedContents(super().passed_on())
        copy.text = b""
        return copy

    def with_uris(self, local: Callable[[str], str]) -> StreamedContents:  # noqa: ARG002 - they were replaced
        """Return the result."""
        return self


class ContentsRewriter:
    """Reads a response to ``resources/read`` piece by piece, and returns its contents with other URIs.

    Args:
        local: Returns the other URI for one.
        bounds: Maximum values in the message.

    Attributes:
        has_begun: True once the contents have begun.
    """

    def __init__(self, local: Callable[[str], str], bounds: ValueBounds) -> None:
        self._local = local
        self._containers, self._entries = bounds.containers, bounds.entries
        self._decoder = getincrementaldecoder("utf-8")()
        self._is_within_char = False
        self._rest = b""
        """Beginning of a name, or another token, that is not complete."""
        self._start = 0
        """Position at which the text begins that is neither kept nor passed on."""
        self._passed: list[bytes] = []
        self._kept = bytearray()
        self._open: list[bytes] = []
        self._names = [b""] * (_ITEM + 1)
        """The last name at each depth."""
        self._texts: set[bytes] = set()
        """Names of texts in the current item."""
        self._next = _VALUE
        self._is_in_string = False
        self._is_in_contents = False
        self._has_result = False
        self.has_begun = False

    def feed(self, text: bytes) -> bytes:
        """Return the text to pass on.

        Raises:
            WireError: It is not JSON, or no response with contents, or exceeds the limits.
        """
        self._check_encoding(text)
        text = self._rest + text if self._rest else text
        position = self._start = 0
        while position < len(text):
            if self._is_in_string:
                position = _end_of_chars(text, position)
                if text[position : position + 1] != b'"':
                    break
                self._is_in_string = False
                position += 1
            elif (end := self._take(text, position)) is None:
                break
            else:
                position = end
        self._put(text, position, position)
        self._rest = text[position:]
        if self._rest and self._is_in_string and not _may_be_escape(self._rest):
            raise WireError("a string in it is not JSON")
        if len(self._rest) > MAX_NAME_BYTES:
            raise WireError("a URI, a name or a number in it is too long")
        passed, self._passed = self._passed, []
        return b"".join(passed)

    def begun(self) -> Json:
        """Return the message as far as it was read before its contents.

        Raises:
            WireError: It is not JSON.
        """
        return self._message(allow_partial=True)

    def finish(self) -> Json:
        """Return the message without its contents, at the end of its text.

        Raises:
            WireError: It is not complete.
        """
        if self._next != _NOTHING or self._rest:
            raise WireError("its JSON ends before it is complete")
        return self._message()

    def _message(self, *, allow_partial: bool = False) -> Json:
        try:
            message: Json = from_json(bytes(self._kept), allow_partial=allow_partial)
        except ValueError as error:
            raise WireError(f"it is not JSON: {error}") from error
        return message

    def _check_encoding(self, text: bytes) -> None:
        if self._is_within_char or not text.isascii():
            try:
                self._decoder.decode(text)
            except UnicodeDecodeError:
                raise WireError("its text is not UTF-8") from None
            self._is_within_char = bool(self._decoder.getstate()[0])

    def _put(self, text: bytes, end: int, start: int) -> None:
        """Pass on or keep the text up to an end; the next one starts at ``start``."""
        part = text[self._start : end]
        self._start = start
        if self._is_in_contents:
            self._passed.append(part)
        else:
            self._kept += part
            if len(self._kept) > MAX_KEPT_BYTES:
                raise WireError(f"it has more than {MAX_KEPT_BYTES:,} bytes beside its contents")

    def _take(self, text: bytes, position: int) -> int | None:
        """Take a token; return its end, or None if it is not complete."""
        if (found := _TOKEN.match(text, position)) is None:
            raise WireError(f"{text[position : position + 1]!r} is not JSON")
        token, end = found[0], found.end()
        if token == b'"':
            return self._take_string(text, position)
        if token in _MARKS:
            self._take_mark(token, text, position)
        elif token.isspace():
            self._put(text, position, end)  # line breaks end a message over stdio and in event streams
        elif end == len(text):
            return None
        else:
            self._value(token)
            if len(token) > MAX_NUMBER_BYTES:
                raise WireError("a number in it is too long")
            if _SCALAR.fullmatch(token) is None:
                raise WireError(f"{token[:20]!r} is not JSON")
        return end

    def _take_mark(self, token: bytes, text: bytes, position: int) -> None:
        if token in _CLOSERS:
            self._closes(token, text, position)
        elif token == b",":
            self._expect(_COMMA)
            self._next = _NAME if self._open[-1] == b"{" else _VALUE
            self._entries -= 1
        elif token == b":":
            self._expect(_COLON)
            self._next = _VALUE
        else:
            self._opens(token, text, position + 1)
        if self._containers < 0 or self._entries < 0:
            raise WireError("it has too many values")

    def _take_string(self, text: bytes, position: int) -> int | None:
        depth, is_name = len(self._open), self._next in {_NAME, _FIRST_NAME}
        is_known = depth == _ITEM if self._is_in_contents else depth <= _RESULT
        name = self._names[depth] if is_known else b""
        if is_known and (is_name or (self._is_in_contents and name == b"uri")):
            if (end := _end_of_string(text, position)) is None:
                return None
        else:
            self._is_in_string, end = True, position + 1
        if is_name:
            if is_known:
                self._names[depth] = _text_of(text[position:end]).encode(errors="replace")
            self._next = _COLON
            return end
        self._value(b'"')
        if self._is_in_contents and is_known:
            self._texts.add(name)
            if name == b"uri":
                self._put(text, position, end)
                self._passed.append(to_json(self._local(_text_of(text[position:end]))))
        return end

    def _value(self, token: bytes) -> None:
        """Expect a value here that begins with a token."""
        if self._next != _VALUE:
            self._expect(_FIRST_VALUE)
        depth = len(self._open)
        if self._is_in_contents and depth == _ITEM:
            allowed = _KINDS.get(self._names[_ITEM], token)
        else:
            allowed = b"{" if depth == 0 or (self._is_in_contents and depth == _CONTENTS) else token
        if token[0] not in allowed:
            raise WireError("its contents are malformed")
        self._next = _COMMA

    def _expect(self, what: int) -> None:
        if self._next != what:
            raise WireError("its JSON is malformed")

    def _opens(self, token: bytes, text: bytes, end: int) -> None:
        """Open an object or array."""
        self._value(token)
        self._next = _FIRST_NAME if token == b"{" else _FIRST_VALUE
        self._containers -= 1
        self._entries -= 1
        if len(self._open) == MAX_DEPTH:
            raise WireError(f"it has more than {MAX_DEPTH} objects and arrays within each other")
        is_of_result = self._names[_ROOT] == b"result" and not self._is_in_contents
        if is_of_result and len(self._open) == _ROOT:
            if self._has_result:
                raise WireError("it has two results")
            self._has_result = True
        if is_of_result and self._open == [b"{", b"{"] and token == b"[" and self._names[_RESULT] == b"contents":
            if self.has_begun:
                raise WireError("it has contents twice")
            self._put(text, end, end)
            self.has_begun = self._is_in_contents = True
            self._passed.append(b'{"contents":[')
        self._open.append(token)
        if self._is_in_contents and len(self._open) == _ITEM:
            self._texts = set()

    def _closes(self, token: bytes, text: bytes, position: int) -> None:
        """Close an object or array."""
        opener, first = _CLOSERS[token]
        if self._next != first:
            self._expect(_COMMA)
        if not self._open or self._open[-1] != opener:
            raise WireError("its JSON is malformed")
        if self._is_in_contents and len(self._open) == _ITEM and not (b"uri" in self._texts and self._texts & _BODIES):
            raise WireError("its contents have no URI, or neither text nor blob")
        self._open.pop()
        self._next = _COMMA if self._open else _NOTHING
        if self._is_in_contents and len(self._open) == _RESULT:
            self._put(text, position, position)
            self._passed.append(token)
            self._is_in_contents = False


def _end_of_chars(text: bytes, position: int) -> int:
    """Return the end of the characters of a string, from a position in it: a quotation mark, or what is incomplete."""
    quote = text.find(b'"', position)
    end = len(text) if quote < 0 else quote
    if end - position >= _LONG_BYTES:
        part = text[position:end]
        if part.find(b"\\") >= 0 and (unusual := _UNUSUAL.search(part.replace(rb"\\", b"__"))) is not None:
            part = part[: unusual.start()]
        if len(part.translate(None, _CONTROLS)) == len(part):
            position += len(part)
    found = _CHARS.match(text, position)
    assert found is not None, "it matches the empty text"
    return found.end()


def _end_of_string(text: bytes, position: int) -> int | None:
    """Return the end of a string that begins at a position; None if it is not complete."""
    end = _end_of_chars(text, position + 1)
    if text[end : end + 1] == b'"':
        return end + 1
    if end == len(text) or _may_be_escape(text[end:]):
        return None
    raise WireError("a string in it is not JSON")


def _may_be_escape(text: bytes) -> bool:
    """Return True if a text may be an escape that is not complete."""
    return text[:1] == b"\\" and len(text) < _MAX_ESCAPE_BYTES


def _text_of(string: bytes) -> str:
    text: str = from_json(string)
    return text
