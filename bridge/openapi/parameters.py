"""Parameters of an operation: where each argument of its tool goes, and the schema of all arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from bridge.client.transports.received_data import media_type
from bridge.errors import DefinitionError
from bridge.openapi.document import models, safe_name, unique_names
from bridge.openapi.schemas import SchemaConverter
from bridge.openapi.serialization import PATH_STYLES, QUERY_STYLES, is_header_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.openapi.document import OpenApiDocument, Operation
    from bridge.types import Json

Place = Literal["path", "query", "header", "cookie", "body"]
"""Part of a request."""

FORM = "application/x-www-form-urlencoded"
"""Media type of a body of a form."""
MULTIPART = "multipart/form-data"
"""Media type of a body of a form with files (RFC 7578)."""

_FILE_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json")
_DEFAULT_STYLES: dict[str, str] = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_STYLES: dict[str, frozenset[str]] = {
    "path": PATH_STYLES,
    "query": QUERY_STYLES,
    "header": frozenset({"simple"}),
    "cookie": frozenset({"form"}),
}
_OWN_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length"),
        *("content-type", "cookie", "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
_PLAIN_OBJECT = frozenset({"type", "properties", "required", "title", "description", "example", "examples", "default"})
_CHOICES = ("anyOf", "oneOf")
_ANY_FILE = "application/octet-stream"
_BODY = "body"
_EXTENSION = "x-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Place of one argument in a request."""

    argument: str
    """Name of the argument."""
    name: str
    """Name in the request."""
    place: Place
    """Part of the request."""
    schema: Any
    """JSON Schema of the argument."""
    is_required: bool = False
    """True if the argument has to be given."""
    style: str = ""
    """Style of OpenAPI; empty in a body."""
    explode: bool = False
    """True if each item is written by itself."""
    is_json: bool = False
    """True if the value is written as JSON, whatever its type."""
    file_type: str | None = None
    """Media type of a file in a form, whose value is base64; None for other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Body of a request."""

    media_type: str
    """JSON, `FORM` or `MULTIPART`."""
    is_whole: bool
    """True if one argument is the body; otherwise each is a property of it."""
    is_required: bool
    """True if it is sent without arguments, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that a request of an operation consists of."""

    parameters: tuple[Parameter, ...]
    """Places of the arguments."""
    body: Body | None
    """The body; None if there is none."""
    schema: Json
    """JSON Schema of the arguments."""


def inputs_of(document: OpenApiDocument, operation: Operation, secret_names: Iterable[tuple[str, str]]) -> Inputs:
    """Read the parameters and the body of an operation.

    Args:
        document: The document.
        operation: The operation.
        secret_names: Places and names of credentials, which are never arguments.

    Raises:
        DefinitionError: They are invalid, or not supported.
    """
    converter = SchemaConverter(document, "request", operation.label)
    secrets = {(place, name.lower() if place == "header" else name) for place, name in secret_names}
    parameters = [
        parameter
        for raw in _declared(document, operation)
        for parameter in [_parameter(document, operation, raw, converter)]
        if not _is_own(parameter, secrets)
    ]
    template = set(re.findall(r"\{([^{}]*)\}", operation.path))
    if template != {each.name for each in parameters if each.place == "path"}:
        raise DefinitionError(f"{document.source}: {operation.label} does not declare the parameters of its path")
    body, fields = _body(document, operation, converter)
    named = _with_unique_names([*parameters, *fields])
    schema: Json = {
        "type": "object",
        "properties": {each.argument: each.schema for each in named},
        "required": [each.argument for each in named if each.is_required],
        "additionalProperties": False,
    }
    if not schema["required"]:
        del schema["required"]
    return Inputs(parameters=tuple(named), body=body, schema=converter.with_definitions(schema))


def json_media_type(content: object) -> str | None:
    """Return the first media type of a ``content`` object that is JSON; None if there is none."""
    if not isinstance(content, Mapping):
        return None
    return next((name for name in content if _JSON.fullmatch(media_type(name))), None)


def _declared(document: OpenApiDocument, operation: Operation) -> list[Json]:
    """Parameters of an operation, and those of its path that it does not override."""
    found: dict[tuple[str, str], Json] = {}
    for owner in (operation.path_item, operation.content):
        declared = owner.get("parameters")
        for raw in declared if isinstance(declared, list) else ():
            parameter = document.resolved(raw, f"a parameter of {operation.label}")
            found[str(parameter.get("in")), str(parameter.get("name"))] = parameter
    return list(found.values())


def _parameter(document: OpenApiDocument, operation: Operation, raw: Json, converter: SchemaConverter) -> Parameter:
    what = f"the parameter {raw.get('name')!r} of {operation.label}"
    fields = {key: value for key, value in raw.items() if key not in {"schema", "content", "example", "examples"}}
    model = document.parsed(models().Parameter, {**fields, "schema": {}}, what)
    place: Any = model.param_in.value
    if place == "header" and not is_header_name(model.name):
        raise DefinitionError(f"{document.source}: {what} has a name that no header may have")
    content, is_json = raw.get("content"), False
    schema = raw.get("schema", {})
    if isinstance(content, dict):
        kind = json_media_type(content)
        if kind is None:
            raise DefinitionError(f"{document.source}: {what} is not JSON, which is the only content that is supported")
        schema, is_json = document.resolved(content[kind], what).get("schema", {}), True
    style = model.style or _DEFAULT_STYLES[place]
    if style not in _STYLES[place]:
        raise DefinitionError(f"{document.source}: {what} has the style {style!r}, which is not one of a {place}")
    converted = _described(converter.convert(schema), model.description, is_deprecated=model.deprecated)
    return Parameter(
        argument=safe_name(model.name),
        name=model.name,
        place=place,
        schema=converted,
        is_required=model.required or place == "path",
        style=style,
        explode=style == "form" if model.explode is None else model.explode,
        is_json=is_json,
    )


def _described(schema: Any, description: str | None, *, is_deprecated: bool = False) -> Any:
    """Add what a parameter says about itself to its schema."""
    added: Json = {"description": description} if description else {}
    if is_deprecated:
        added["deprecated"] = True
    if schema is True:
        return added
    return {**schema, **added} if isinstance(schema, dict) else schema


def _is_own(parameter: Parameter, secrets: set[tuple[str, str]]) -> bool:
    """True for what this client sets itself: credentials, and headers of the connection and of the body."""
    name = parameter.name.lower() if parameter.place == "header" else parameter.name
    return (parameter.place, name) in secrets or (parameter.place == "header" and name in _OWN_HEADERS)


def _body(
    document: OpenApiDocument, operation: Operation, converter: SchemaConverter
) -> tuple[Body | None, list[Parameter]]:
    if operation.content.get("requestBody") is None:
        return None, []
    raw = document.resolved(operation.content["requestBody"], f"the body of {operation.label}")
    content, is_required = raw.get("content"), raw.get("required") is True
    kind = json_media_type(content) or _form_of(content)
    schema: Any = None
    plain: Any = None
    if kind is not None and isinstance(content, dict):
        schema = document.resolved(content[kind], f"the body of {operation.label}").get("schema", {})
        plain = converter.resolved(schema)
    is_divisible, is_multipart = _is_divisible(plain, is_required=is_required), media_type(kind or "") == MULTIPART
    if kind is None or (is_multipart and not is_divisible):
        if not is_required:
            return None, []
        kinds = ", ".join(content) if isinstance(content, dict) else "no content"
        raise DefinitionError(
            f"{document.source}: {operation.label} needs a body that is not supported ({kinds}); "
            f"supported are JSON, {FORM}, and {MULTIPART} with an object that has properties"
        )
    if not is_divisible:
        whole = _described(converter.convert(schema), raw.get("description"))
        parameter = Parameter(argument=_BODY, name="", place="body", schema=whole, is_required=is_required)
        return Body(media_type=kind, is_whole=True, is_required=is_required), [parameter]
    required = plain["required"] if isinstance(plain.get("required"), list) else ()
    fields = []
    for name, each in plain["properties"].items():
        if converter.is_hidden(each):
            continue
        file_type = _file_type(converter.resolved(each)) if is_multipart else None
        field = converter.convert(each if file_type is None else converter.resolved(each))
        fields.append(
            Parameter(
                argument=safe_name(name),
                name=name,
                place="body",
                schema=field if file_type is None else _in_base64(field),
                is_required=name in required,
                file_type=file_type,
            )
        )
    return Body(media_type=kind, is_whole=False, is_required=is_required), fields


def _form_of(content: object) -> str | None:
    if not isinstance(content, Mapping):
        return None
    return next((name for form in (FORM, MULTIPART) for name in content if media_type(name) == form), None)


def _file_type(schema: Any, levels: int = 2) -> str | None:
    """Return the media type of a property that is a file, a list of files, or either or null; None for others."""
    if not isinstance(schema, dict):
        return None
    if inner := _inner(schema):
        return next((kind for each in inner if levels and (kind := _file_type(each, levels - 1))), None)
    kind = schema.get("contentMediaType")
    if schema.get("format") != "binary" and (kind is None or "contentEncoding" in schema):
        return None
    return kind if isinstance(kind, str) and _FILE_TYPE.fullmatch(kind) else _ANY_FILE


def _inner(schema: Json) -> list[Any]:
    """Return the schemas of the items and of the choices of a schema."""
    lists = [schema[key] for key in _CHOICES if isinstance(schema.get(key), list)]
    return [*([schema["items"]] if "items" in schema else []), *(each for choices in lists for each in choices)]


def _in_base64(schema: Any) -> Any:
    """Return the schema of an argument for a file: binary text becomes base64, at any depth."""
    if isinstance(schema, list):
        return [_in_base64(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _in_base64(each) if key in {*_CHOICES, "items"} else each for key, each in schema.items()}
    if _inner(schema) or not (schema.get("format") == "binary" or "contentMediaType" in schema):
        return changed
    return {key: each for key, each in changed.items() if key != "format"} | {"contentEncoding": "base64"}


def _is_divisible(schema: Any, *, is_required: bool) -> bool:
    """True if the properties of a body may be arguments by themselves: it is a plain object that can be told apart."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict) or not schema["properties"]:
        return False
    keywords = {key for key in schema if not key.startswith(_EXTENSION)}
    if schema.get("additionalProperties") is False:
        keywords.discard("additionalProperties")
    is_plain = keywords - {"xml", "externalDocs"} <= _PLAIN_OBJECT and schema.get("type", "object") == "object"
    return is_plain and (is_required or not schema.get("required"))


def _with_unique_names(parameters: list[Parameter]) -> list[Parameter]:
    """Add its place to each name that several parameters have: ``id_path`` and ``id_body``."""
    names = unique_names(
        [each.argument for each in parameters], [f"{each.argument}_{each.place}" for each in parameters]
    )
    return [replace(each, argument=name) for each, name in zip(parameters, names, strict=True)]
