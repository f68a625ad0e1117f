"""OpenAPI documents: their operations, and references inside the document (OpenAPI 3.0 and 3.1)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from pydantic import ValidationError

from bridge.errors import DefinitionError, MissingExtraError
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

    from bridge.types import Json

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
"""Methods that may be operations of a path."""

_VERSION = re.compile(r"3\.(?P<minor>[01])(?:\.\d+)?(?:-.*)?")
_MAX_REFERENCES = 50
_MAX_NAME_CHARS = 64
_CUT_CHARS = 55
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")

M = TypeVar("M", bound="BaseModel")


def models() -> Any:
    """Return the models of OpenAPI 3.1.

    Raises:
        MissingExtraError: ``openapi-pydantic`` is not installed.
    """
    try:
        from openapi_pydantic.v3 import v3_1  # noqa: PLC0415 - an extra, which public names may not need
    except ImportError as missing:
        raise MissingExtraError("an OpenAPI document", "openapi-pydantic", "openapi") from missing
    return v3_1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a document, not resolved yet."""

    name: str
    """Name of its tool: the operationId, or else from its method and path."""
    method: str
    """HTTP method in capitals."""
    path: str
    """Path template, such as ``/pets/{id}``."""
    operation_id: str = ""
    """Its operationId; empty if it has none."""
    tags: tuple[str, ...] = ()
    """Its tags."""
    content: Mapping[str, Any]
    """The operation as JSON."""
    path_item: Mapping[str, Any]
    """The path item that contains it, as JSON."""

    @property
    def label(self) -> str:
        """Method and path, for messages."""
        return f"{self.method} {self.path}"


class OpenApiDocument:
    """An OpenAPI document of version 3.0 or 3.1.

    Args:
        content: The document.
        source: Name of the document, for messages.

    Raises:
        DefinitionError: It is no such document.
    """

    def __init__(self, content: Json, source: str) -> None:
        models()
        self.content = content
        self.source = source
        if "swagger" in content:
            raise DefinitionError(f"{source} is a Swagger {content['swagger']} document; convert it to OpenAPI 3")
        match = _VERSION.fullmatch(str(content.get("openapi", "")))
        if match is None:
            found = f"'openapi' is {short_repr(content['openapi'])}" if "openapi" in content else "it has no 'openapi'"
            raise DefinitionError(f"{source} is not an OpenAPI document of version 3.0 or 3.1: {found}")
        self.is_3_0 = match["minor"] == "0"
        """True for version 3.0, whose schemas are not those of JSON Schema 2020-12."""
        self.operations = self._operations()
        """All operations, in the order of the document."""

    @property
    def title(self) -> str:
        """Title of the API; empty if it has none."""
        info = self.content.get("info")
        title = info.get("title") if isinstance(info, dict) else None
        return title if isinstance(title, str) else ""

    def at(self, pointer: Any) -> Any:
        """Return the value that a ``$ref`` names.

        Raises:
            DefinitionError: The reference leads outside of the document, or to nothing.
        """
        if pointer != "#" and not (isinstance(pointer, str) and pointer.startswith("#/")):
            raise DefinitionError(
                f"{self.source}: the reference {short_repr(pointer)} leads outside of the document, or is not a JSON "
                "pointer; references are never fetched: bundle the document into one file"
            )
        value: Any = self.content
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and len(key) < len(str(len(value))) + 1:
                value = value[int(key)] if int(key) < len(value) else None
            else:
                value = None
            if value is None:
                raise DefinitionError(f"{self.source}: the reference {short_repr(pointer)} leads to nothing")
        return value

    def resolved(self, value: Any, what: str) -> Json:
        """Return an object, or the one that its references lead to; ``what`` names it in messages.

        Raises:
            DefinitionError: It is not an object, or the references lead to none.
        """
        for _ in range(_MAX_REFERENCES):
            if not isinstance(value, dict):
                raise DefinitionError(f"{self.source}: {what} is not an object: {short_repr(value)}")
            if "$ref" not in value:
                return value
            value = self.at(value["$ref"])
        raise DefinitionError(f"{self.source}: the references of {what} lead to each other, or are too many")

    def parsed(self, kind: type[M], value: Mapping[str, Any], what: str) -> M:
        """Parse a part of the document.

        Raises:
            DefinitionError: It is invalid.
        """
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise DefinitionError(f"{self.source}: {what} is invalid: {place}: {first['msg']}") from error

    def _operations(self) -> tuple[Operation, ...]:
        paths = self.content.get("paths", {})
        if not isinstance(paths, dict):
            raise DefinitionError(f"{self.source}: 'paths' is not an object: {short_repr(paths)}")
        found = [
            (method, path, item, item[method])
            for path, value in paths.items()
            if path.startswith("/")
            for item in [self.resolved(value, f"the path {path!r}")]
            for method in METHODS
            if isinstance(item.get(method), dict)
        ]
        names = _names([(method, path, content.get("operationId")) for method, path, _, content in found])
        return tuple(
            Operation(
                name=name,
                method=method.upper(),
                path=path,
                content=content,
                path_item=item,
                operation_id=identifier if isinstance(identifier := content.get("operationId"), str) else "",
                tags=tuple(tag for tag in _list(content.get("tags")) if isinstance(tag, str)),
            )
            for name, (method, path, item, content) in zip(names, found, strict=True)
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def safe_name(text: str) -> str:
    """Return a text as a name of letters, digits, underscores, dots and hyphens; long ones end with a hash."""
    name = _UNSAFE.sub("_", text).strip("_") or "_"
    if len(name) <= _MAX_NAME_CHARS:
        return name
    return f"{name[:_CUT_CHARS]}_{sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _names(operations: list[tuple[str, str, Any]]) -> list[str]:
    """Names of all operations, which do not depend on the selection: an operationId that is unique, or the path."""
    by_path = [safe_name(f"{method}_{re.sub('[{}]', '', path).strip('/')}") for method, path, _ in operations]
    given = [
        safe_name(identifier) if isinstance(identifier, str) and identifier else path
        for (_, _, identifier), path in zip(operations, by_path, strict=True)
    ]
    return unique_names(given, by_path)


def unique_names(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Replace each name that is there several times by the other one at its place, with a number if that is taken."""
    counts = Counter(names)
    last_numbers = {name: 1 for name, count in counts.items() if count == 1}
    return [
        name if counts[name] == 1 else free_name(other, last_numbers) for name, other in zip(names, others, strict=True)
    ]


def free_name(name: str, last_numbers: dict[str, int]) -> str:
    """Return a name, with a number if it is taken, and take it.

    Args:
        name: The name.
        last_numbers: The last number that was added to each taken name, 1 for none. Each number is tried once, so many
            equal names take linear time.
    """
    candidate = name
    while candidate in last_numbers:
        last_numbers[name] += 1
        candidate = f"{name}_{last_numbers[name]}"
    last_numbers[candidate] = 1
    return candidate
