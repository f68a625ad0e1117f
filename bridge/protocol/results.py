"""Results of a server: the form that each method's result must have in either era.

Only the members that MCP defines are checked; any other member passes unchanged. Clauses: MCP 2025-11-25 and
2026-07-28, schema, the results of each method.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from bridge.protocol.versions import MODERN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic_core import CoreSchema

    from bridge.types import Json

LATER_MEMBERS = frozenset({"resultType", "ttlMs", "cacheScope", "inputRequests", "requestState"})
"""Members of results that the handshake era does not have."""
InvalidResultError = ValidationError
"""A result has not the form of its method; see `reason_of`."""

_TEXT, _BOOL, _INT = cs.str_schema(), cs.bool_schema(), cs.int_schema()
_ANY, _OBJECT = cs.any_schema(), cs.dict_schema()
_META = {"_meta": _OBJECT}
_ROLE = cs.literal_schema(["assistant", "user"])


def _form(required: Mapping[str, CoreSchema], optional: Mapping[str, CoreSchema] | None = None) -> CoreSchema:
    """Form of an object with these members; an optional one may be null."""
    fields = {name: cs.typed_dict_field(schema) for name, schema in required.items()}
    for name, schema in (optional or {}).items():
        fields[name] = cs.typed_dict_field(cs.nullable_schema(schema), required=False)
    return cs.typed_dict_schema(fields)


_ANNOTATIONS = _form(
    {},
    {"audience": cs.list_schema(_ROLE), "lastModified": _TEXT, "priority": cs.float_schema(ge=0.0, le=1.0)},
)
_ICON = _form(
    {"src": _TEXT},
    {"mimeType": _TEXT, "sizes": cs.list_schema(_TEXT), "theme": cs.literal_schema(["dark", "light"])},
)
_ABOUT: Mapping[str, CoreSchema] = {**_META, "title": _TEXT, "description": _TEXT, "icons": cs.list_schema(_ICON)}
_LABELLED: Mapping[str, CoreSchema] = {**_META, "annotations": _ANNOTATIONS}
_RESOURCE: Mapping[str, CoreSchema] = {**_ABOUT, **_LABELLED, "mimeType": _TEXT, "size": _INT}
_CONTENTS = cs.union_schema(
    [_form({"uri": _TEXT, member: _TEXT}, {**_META, "mimeType": _TEXT}) for member in ("text", "blob")]
)
_BLOCK = cs.tagged_union_schema(
    {
        "text": _form({"text": _TEXT}, _LABELLED),
        "image": _form({"data": _TEXT, "mimeType": _TEXT}, _LABELLED),
        "audio": _form({"data": _TEXT, "mimeType": _TEXT}, _LABELLED),
        "resource_link": _form({"uri": _TEXT, "name": _TEXT}, _RESOURCE),
        "resource": _form({"resource": _CONTENTS}, _LABELLED),
    },
    discriminator="type",
)
_SERVER_INFO = _form({"name": _TEXT, "version": _TEXT}, {**_ABOUT, "websiteUrl": _TEXT})
_QUESTION = _form({"method": _TEXT}, {"params": _OBJECT})


def _capabilities() -> CoreSchema:
    changes = {"listChanged": _BOOL}
    objects = cs.dict_schema(_TEXT, _OBJECT)
    return _form(
        {},
        {
            "completions": _OBJECT,
            "logging": _OBJECT,
            "experimental": objects,
            "extensions": objects,
            "prompts": _form({}, changes),
            "resources": _form({}, {**changes, "subscribe": _BOOL}),
            "tools": _form({}, changes),
        },
    )


def _tool(*, is_modern: bool) -> CoreSchema:
    keywords: Mapping[str, CoreSchema] = {"$schema": _TEXT}
    of_object: Mapping[str, CoreSchema] = {"type": cs.literal_schema(["object"])}
    if not is_modern:
        of_any = cs.union_schema([_OBJECT, _BOOL])
        keywords = {**keywords, "properties": cs.dict_schema(_TEXT, of_any), "required": cs.list_schema(_TEXT)}
    hints = ("destructiveHint", "idempotentHint", "openWorldHint", "readOnlyHint")
    output = _form({} if is_modern else of_object, keywords)
    annotations = _form({}, {"title": _TEXT, **dict.fromkeys(hints, _BOOL)})
    return _form(
        {"name": _TEXT, "inputSchema": _form(of_object, keywords)},
        {**_ABOUT, "annotations": annotations, "outputSchema": output},
    )


def _page(member: str, item: CoreSchema, *, is_modern: bool) -> CoreSchema:
    return _result({member: cs.list_schema(item)}, {"nextCursor": _TEXT}, is_modern=is_modern, is_cached=True)


def _result(
    required: Mapping[str, CoreSchema],
    optional: Mapping[str, CoreSchema] | None = None,
    *,
    is_modern: bool,
    is_cached: bool = False,
    may_ask: bool = False,
) -> CoreSchema:
    required, optional = dict(required), {**_META, **(optional or {})}
    if is_modern:
        required["resultType"] = _TEXT
        if is_cached:
            required |= {"ttlMs": cs.int_schema(ge=0), "cacheScope": cs.literal_schema(["private", "public"])}
    form = _form(required, optional)
    if not (is_modern and may_ask):
        return form
    asking = {"inputRequests": cs.dict_schema(_TEXT, _QUESTION), "requestState": _TEXT}
    other = _form({"resultType": _TEXT}, {**_META, **asking})

    def kind(value: Any) -> str:
        has_type = isinstance(value, dict) and isinstance(value.get("resultType"), str)
        return "other" if has_type and value["resultType"] != "complete" else "result"

    return cs.tagged_union_schema({"other": other, "result": form}, discriminator=kind)


def _call(*, is_modern: bool) -> CoreSchema:
    data = _ANY if is_modern else _OBJECT
    members = {"isError": _BOOL, "structuredContent": data}
    return _result({"content": cs.list_schema(_BLOCK)}, members, is_modern=is_modern, may_ask=True)


def _read(*, is_modern: bool) -> CoreSchema:
    return _result({"contents": cs.list_schema(_CONTENTS)}, is_modern=is_modern, is_cached=True, may_ask=True)


def _prompt(*, is_modern: bool) -> CoreSchema:
    message = _form({"role": _ROLE, "content": _BLOCK})
    return _result({"messages": cs.list_schema(message)}, {"description": _TEXT}, is_modern=is_modern, may_ask=True)


def _completion(*, is_modern: bool) -> CoreSchema:
    values = cs.list_schema(_TEXT, max_length=100 if is_modern else None)
    return _result({"completion": _form({"values": values}, {"hasMore": _BOOL, "total": _INT})}, is_modern=is_modern)


def _handshake(*, is_modern: bool) -> CoreSchema:
    known = {"capabilities": _capabilities()}
    if is_modern:
        versions = {"supportedVersions": cs.list_schema(_TEXT)}
        return _result({**known, **versions}, {"instructions": _TEXT}, is_modern=True, is_cached=True)
    return _form({**known, "protocolVersion": _TEXT, "serverInfo": _SERVER_INFO}, {**_META, "instructions": _TEXT})


def _prompts(*, is_modern: bool) -> CoreSchema:
    argument = _form({"name": _TEXT}, {"title": _TEXT, "description": _TEXT, "required": _BOOL})
    prompt = _form({"name": _TEXT}, {**_ABOUT, "arguments": cs.list_schema(argument)})
    return _page("prompts", prompt, is_modern=is_modern)


_FORMS: Mapping[str, Callable[..., CoreSchema]] = {
    "initialize": _handshake,
    "server/discover": _handshake,
    "tools/call": _call,
    "tools/list": lambda *, is_modern: _page("tools", _tool(is_modern=is_modern), is_modern=is_modern),
    "resources/list": lambda *, is_modern: _page(
        "resources", _form({"uri": _TEXT, "name": _TEXT}, _RESOURCE), is_modern=is_modern
    ),
    "resources/templates/list": lambda *, is_modern: _page(
        "resourceTemplates",
        _form({"uriTemplate": _TEXT, "name": _TEXT}, {**_ABOUT, **_LABELLED, "mimeType": _TEXT}),
        is_modern=is_modern,
    ),
    "prompts/list": _prompts,
    "resources/read": _read,
    "prompts/get": _prompt,
    "completion/complete": _completion,
    "skills/list": lambda *, is_modern: _page(
        "skills", _form({"uri": _TEXT, "frontmatter": _OBJECT}), is_modern=is_modern
    ),
    "events/list": lambda *, is_modern: _result(
        {"events": cs.list_schema(_form({"name": _TEXT}))}, {"nextCursor": _TEXT}, is_modern=is_modern
    ),
    "skills/get": lambda *, is_modern: _result({"skill": _OBJECT}, is_modern=is_modern),
}


@cache
def _validator(method: str, is_modern: bool) -> SchemaValidator | None:
    """Validator of a method's result; None for a method whose results are not checked."""
    form = _FORMS.get(method)
    return None if form is None else SchemaValidator(form(is_modern=is_modern))


def valid_result(method: str, version: str, result: Json) -> Json:
    """Return a result that has the form of its method, without members of a later version.

    Args:
        method: The method of the request.
        version: Protocol version of the session.
        result: The result; returned itself if nothing has to be removed.

    Raises:
        InvalidResultError: It has another form.
    """
    is_modern = version in MODERN_VERSIONS
    if method == "tools/call" and _has_only_texts(result, is_modern=is_modern):
        return result
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and ttl < 0:
        result = {**result, "ttlMs": 0}
    if (validator := _validator(method, is_modern)) is None:
        return result
    validator.validate_python(result)
    if not is_modern and not LATER_MEMBERS.isdisjoint(result):
        return {key: value for key, value in result.items() if key not in LATER_MEMBERS}
    return result


def reason_of(error: InvalidResultError, depth: int = 0) -> str:
    """Describe the first difference of a result from its form, without its values.

    Args:
        error: The error.
        depth: Number of steps of the path to the difference that are left out.
    """
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join(map(str, first["loc"][depth:]))
    return f"{path}: {first['msg']}" if path else first["msg"]


def _has_only_texts(result: Json, *, is_modern: bool) -> bool:
    """True for a call's result with texts, and data: the validator would take longer than the rest."""
    for key, value in result.items():
        match key:
            case "content":
                is_valid = type(value) is list and all(map(_is_text, value))
            case "isError":
                is_valid = type(value) is bool
            case "resultType":
                is_valid = is_modern and value == "complete"
            case "structuredContent" | "_meta":
                is_valid = type(value) is dict
            case _:
                is_valid = False
        if not is_valid:
            return False
    return "content" in result and ("resultType" in result or not is_modern)


def _is_text(block: Any) -> bool:
    return type(block) is dict and len(block) == 2 and block.get("type") == "text" and type(block.get("text")) is str  # noqa: PLR2004
