"""Arguments that a tool's schema declares to be repeated in HTTP headers, and the form of such headers.

MCP 2026-07-28, Transports, "Custom Headers" (``x-mcp-header``) and "Header Value Encoding".
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import HEADER_MISMATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    HeaderNames = Mapping[tuple[str, ...], str]
    """Names of headers, by the paths of their arguments."""

KEYWORD = "x-mcp-header"
"""Keyword of a property whose value is repeated."""
_PREFIX = "Mcp-Param-"
_PRINTABLE = re.compile(r"[\x20-\x7E]*")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = frozenset({"string", "integer", "boolean"})
_SCHEMAS = frozenset(
    {
        *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"),
        *("not", "if", "then", "else", "contentSchema"),
    }
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})


def header_value(value: str) -> str:
    """Return a value as that of a header: as it is, or in base64 if a header cannot carry it."""
    if _PRINTABLE.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{b64encode(value.encode()).decode('ascii')}?="


def decoded_header(value: bytes) -> str | None:
    """Return the text that `header_value` has written; None if its base64 is malformed.

    Bytes that are not UTF-8 become surrogates, which no text of a message has.
    """
    text = value.decode(errors="surrogateescape")
    encoded = _ENCODED.fullmatch(text)
    if encoded is None:
        return text
    try:
        decoded = b64decode(encoded[1], validate=True)
        # Only the canonical form counts: others have bits set after the last byte.
        return decoded.decode() if b64encode(decoded).decode("ascii") == encoded[1] else None
    except ValueError:
        return None


class CheckedHeader(NamedTuple):
    """A header that a server compares with an argument."""

    name: str
    path: tuple[str, ...]
    """Path of the argument."""
    is_integer: bool
    """True if the argument is an integer by its schema."""

    @property
    def argument(self) -> str:
        """The argument in words."""
        return ".".join(self.path)


def header_names(schema: Any) -> HeaderNames:
    """Return the headers that an input schema declares.

    Raises:
        ValueError: A declaration is not valid, so that the tool must not be used.
    """
    return {path: part[KEYWORD] for path, part in _declarations(schema)}


def checked_headers(schema: Any) -> tuple[CheckedHeader, ...]:
    """Return the same headers for a server; none if a declaration is not valid, since clients do not use the tool."""
    try:
        declarations = _declarations(schema)
    except ValueError:
        return ()
    return tuple(CheckedHeader(_PREFIX + part[KEYWORD], path, part["type"] == "integer") for path, part in declarations)


def _declarations(schema: Any) -> list[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Return the properties with a header, and the paths of their arguments."""
    names: set[str] = set()
    found: list[tuple[tuple[str, ...], Mapping[str, Any]]] = []
    for path, part in _parts(schema):
        if KEYWORD not in part:
            continue
        if not path:
            raise ValueError(f"{KEYWORD} is not at a property that 'properties' alone lead to")
        where, name, kind = ".".join(path), part[KEYWORD], part.get("type")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"{KEYWORD} of the property {where!r} is not the name of a header")
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ValueError(f"the property {where!r} with {KEYWORD} is not a string, an integer or a boolean")
        if name.lower() in names:
            raise ValueError(f"{KEYWORD} of the property {where!r} is that of another one, too")
        names.add(name.lower())
        found.append((path, part))
    return found


def param_headers(names: HeaderNames, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a call: those whose arguments are given, and can be written."""
    headers: dict[str, str] = {}
    for path, name in names.items():
        written = _written(_argument(arguments, path))
        if written is not None:
            headers[_PREFIX + name] = header_value(written)
    return headers


def check_param_headers(
    checked: Iterable[CheckedHeader], arguments: Mapping[str, Any], headers: Mapping[bytes, bytes]
) -> None:
    """Check the headers of a call against its arguments.

    Args:
        checked: The headers that the tool declares.
        arguments: The arguments.
        headers: All headers of the request, with names in lower case.

    Raises:
        ProtocolError: A header is missing, or does not have the value of its argument.
    """
    for each in checked:
        received, value = headers.get(each.name.lower().encode("ascii")), _argument(arguments, each.path)
        problem = _mismatch(each, received, value)
        if problem is not None:
            raise ProtocolError(HEADER_MISMATCH, problem)


def _mismatch(checked: CheckedHeader, received: bytes | None, value: Any) -> str | None:
    """Return the error message for a header that does not have the value of its argument; None if it has."""
    written = _written(value)
    if received is None:
        return None if written is None else f"the header {checked.name} of the argument {checked.argument!r} is missing"
    if value is None:
        return f"the request has the header {checked.name}, but not the argument {checked.argument!r}"
    text = decoded_header(received)
    if text is None:
        return f"the header {checked.name} is not valid base64"
    if text == written or (checked.is_integer and written is not None and _is_same_number(text, value)):
        return None
    return f"the header {checked.name} does not have the value of the argument {checked.argument!r}"


def _argument(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return an argument; None if it is not given."""
    value: Any = arguments
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _written(value: Any) -> str | None:
    """Return an argument as text; None if it is not given, or cannot be written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        return None
    try:
        text = str(value)  # fails for an integer of very many digits
        text.encode()  # fails for lone surrogates
    except ValueError:
        return None
    return text


def _is_same_number(text: str, value: str | float) -> bool:
    """True if a text is a decimal with the value of an integer, such as ``42.0`` for 42."""
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None or isinstance(value, str | bool):
        return False
    try:
        return int(decimal[1]) == value
    except ValueError:  # an integer of very many digits
        return False


def _parts(schema: Any) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Yield each schema within a schema, with the path of properties to it; None if other keywords lead to it."""
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while waiting:
        path, part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield path, part
        for keyword, value in part.items():
            if keyword == "properties" and isinstance(value, dict):
                waiting += [((*path, name) if path is not None else None, each) for name, each in value.items()]
            elif keyword in _SCHEMAS:
                waiting.append((None, value))
            elif keyword in _LISTS and isinstance(value, list):
                waiting += [(None, each) for each in value]
            elif keyword in _MAPS and isinstance(value, dict):
                waiting += [(None, each) for each in value.values()]
