"""Values of parameters in a request: styles of OpenAPI, and percent-encoding (RFC 3986, RFC 6570).

A value never leaves its place: in a path everything but unreserved characters is encoded, and values that a server
could read as further segments are refused; in a query and a cookie all delimiters are encoded.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from pydantic_core import PydanticSerializationError, to_json

PATH_STYLES = frozenset({"simple", "label", "matrix"})
"""Styles of parameters in a path."""
QUERY_STYLES = frozenset({"form", "spaceDelimited", "pipeDelimited", "deepObject"})
"""Styles of parameters in a query."""

Part = tuple[str | None, bytes, str | None]
"""Part of a form with files: file name, content and media type; a field has no file name."""

_SEPARATORS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
_SLASHES = re.compile(r"[/\\]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HALF_PAIR = "should be Unicode text, without halves of surrogate pairs"
_MAX_DECODING = 10


class UnsendableError(ValueError):
    """A value cannot be sent in its place; the message says what is expected, without the value."""


def text_of(value: Any) -> str:
    """Text of one value: as it is, or as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_of(value).decode()


def json_of(value: Any) -> bytes:
    """Write a value as JSON.

    Raises:
        UnsendableError: It contains half a surrogate pair.
    """
    try:
        return to_json(value)
    except PydanticSerializationError:
        raise UnsendableError(_HALF_PAIR) from None


def encoded(text: str) -> str:
    """Percent-encode everything but unreserved characters.

    Raises:
        UnsendableError: The text has half a surrogate pair.
    """
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise UnsendableError(_HALF_PAIR) from None


def in_path(name: str, value: Any, style: str, *, explode: bool) -> str:
    """Encode the value of a parameter in a path.

    Raises:
        UnsendableError: It is empty, or a server could read it as other segments.
    """
    if isinstance(value, Mapping):
        pairs = [(_segment(text_of(key)), _segment(text_of(item))) for key, item in value.items()]
        parts = [f"{key}={item}" for key, item in pairs] if explode else [part for pair in pairs for part in pair]
    elif isinstance(value, list | tuple):
        parts = [_segment(text_of(item)) for item in value]
    else:
        parts = [_segment(text_of(value))]
    if not parts:
        raise UnsendableError("should not be empty")
    if style == "label":
        return "." + ("." if explode else ",").join(parts)
    if style != "matrix":
        return ",".join(parts)
    if explode and isinstance(value, Mapping):
        return "".join(f";{part}" for part in parts)
    if explode:
        return "".join(f";{encoded(name)}={part}" for part in parts)
    return f";{encoded(name)}={','.join(parts)}"


def _segment(text: str) -> str:
    if not text:
        raise UnsendableError("should not be empty")
    plain = text
    for _ in range(_MAX_DECODING):  # some servers decode more than once
        if (decoded := unquote(plain)) == plain:
            break
        plain = decoded
    if _SLASHES.search(plain) or unquote(plain) != plain:
        raise UnsendableError("should be one segment of a path, without slashes and backslashes, encoded or not")
    if plain in {".", ".."}:
        raise UnsendableError("should not be '.' or '..', which name other paths")
    return encoded(text)


def has_dot_segments(path: str) -> bool:
    """True if a path has segments that clients or servers remove, encoded or not."""
    return any(unquote(segment).partition(";")[0] in {".", ".."} for segment in _SLASHES.split(path))


def in_query(name: str, value: Any, style: str, *, explode: bool) -> list[tuple[str, str]]:
    """Encode the value of a parameter in a query, to names and values.

    Raises:
        UnsendableError: It cannot be encoded.
    """
    key = encoded(name)
    if isinstance(value, Mapping):
        pairs = [(encoded(text_of(each)), encoded(text_of(item))) for each, item in value.items()]
        if style == "deepObject":
            return [(f"{key}%5B{each}%5D", item) for each, item in pairs]
        if explode:
            return pairs
        return [(key, _SEPARATORS[style].join(part for pair in pairs for part in pair))] if pairs else []
    if isinstance(value, list | tuple):
        parts = [encoded(text_of(item)) for item in value]
        if explode or style == "deepObject":
            return [(key, part) for part in parts]
        return [(key, _SEPARATORS[style].join(parts))] if parts else []
    return [(key, encoded(text_of(value)))]


def in_multipart(name: str, value: Any, file_type: str | None) -> list[Part]:
    """Encode the value of a property of a form with files, to parts; None has no part, and a list one for each item.

    Args:
        name: Name of the property.
        value: The value; the content of a file is base64.
        file_type: Media type of a file; None for other values.

    Raises:
        UnsendableError: It cannot be encoded.
    """
    encoded(name)  # refuses half a surrogate pair
    items = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [_part(name, item, file_type) for item in items]


def _part(name: str, value: Any, file_type: str | None) -> Part:
    if file_type is not None:
        try:
            return name, b64decode(value, validate=True), file_type
        except (ValueError, TypeError):
            raise UnsendableError("should be the content of a file in base64") from None
    if isinstance(value, Mapping | list | tuple):
        return None, json_of(value), "application/json"
    try:
        return None, text_of(value).encode(), None
    except UnicodeEncodeError:
        raise UnsendableError(_HALF_PAIR) from None


def in_header(value: Any, *, explode: bool) -> str:
    """Write the value of a parameter in a header.

    Raises:
        UnsendableError: It has characters that headers must not have.
    """
    if isinstance(value, Mapping):
        pairs = [(text_of(key), text_of(item)) for key, item in value.items()]
        parts: Iterable[str] = (
            (f"{key}={item}" for key, item in pairs) if explode else (x for pair in pairs for x in pair)
        )
    else:
        parts = map(text_of, value) if isinstance(value, list | tuple) else [text_of(value)]
    text = ",".join(parts)
    if text and not _HEADER_VALUE.fullmatch(text):
        raise UnsendableError("should be printable ASCII text, since it is sent in a header")
    return text


def is_header_name(name: str) -> bool:
    """True if HTTP allows a name for a header (RFC 9110, section 5.6.2)."""
    return _HEADER_NAME.fullmatch(name) is not None
