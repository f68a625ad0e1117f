"""Arguments that a tool's schema declares to be repeated in HTTP headers, and the form of such headers.

MCP 2026-07-28, Transports, "Custom Headers" (``x-mcp-header``) and "Header Value Encoding".
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    HeaderNames = Mapping[tuple[str, ...], str]
    """Names of headers, by the paths of their arguments."""

KEYWORD = "x-mcp-header"
"""Keyword of a property whose value is repeated."""
_PREFIX = "Mcp-Param-"
_PRINTABLE = re.compile(r"[\x20-\x7E]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
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


def header_names(schema: Any) -> HeaderNames:
    """Return the headers that an input schema declares.

    Raises:
        ValueError: A declaration is not valid, so that the tool must not be used.
    """
    names: dict[tuple[str, ...], str] = {}
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
        if name.lower() in map(str.lower, names.values()):
            raise ValueError(f"{KEYWORD} of the property {where!r} is that of another one, too")
        names[path] = name
    return names


def param_headers(names: HeaderNames, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a call: those whose arguments are given, and can be written."""
    headers: dict[str, str] = {}
    for path, name in names.items():
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, bool):
            headers[_PREFIX + name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            try:
                headers[_PREFIX + name] = header_value(str(value))
            except ValueError:  # an integer of very many digits
                continue
    return headers


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
