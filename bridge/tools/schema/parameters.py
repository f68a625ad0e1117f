"""Parameters of a tool, and the annotations that describe them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import GenericAlias, NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

from bridge.errors import DefinitionError
from bridge.tools.caller import Caller, InvocationParameters
from bridge.tools.context import InvocationContext
from bridge.tools.schema.annotations import MISSING, P, bare_type, union_members
from bridge.tools.schema.generator import SCHEMA_ERRORS, alias_of, completed, schema_error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "MISSING",
    "Depends",
    "P",
    "Parameter",
    "ToolMemoryId",
    "dependency_in",
    "foreign_context",
    "injected_attribute",
    "parameter_of",
]

_EXACT = (bool, int, str)
"""Types whose instances are used as defaults without validation."""

_LIBRARIES = frozenset({"mcp", "fastmcp"})
_CONTEXTS = frozenset({"Context", "RequestContext", "ServerRequestContext"})

_INJECTED = {InvocationContext: "itself", InvocationParameters: "parameters", Caller: "caller"}
"""Attributes of the context by the type of a parameter."""
_DEFAULTS = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class ToolMemoryId:
    """Marks a parameter that receives `InvocationContext.memory_id`: ``who: Annotated[str, ToolMemoryId]``.

    The parameter is hidden from the schema (LangChain4j's @ToolMemoryId). It is None in a call without a conversation.
    """


@dataclass(frozen=True, slots=True)
class Depends:
    """Marks a parameter whose value a function provides: ``db: Annotated[Session, Depends(open_session)]``.

    The parameter is hidden from callers and from the schema. The function is called before each call; a generator
    function, or a context manager's, is closed after the call, also when that fails or is cancelled. It may be
    synchronous or not, and take an `InvocationContext`, a `Caller`, and parameters with `Depends` of its own (FastAPI's
    ``Depends``).
    """

    dependency: Callable[..., Any]
    """The function, or a class that is called."""
    use_cache: bool = True
    """True if a call that needs it several times gets one value."""

    def __post_init__(self) -> None:
        if not callable(self.dependency):
            raise DefinitionError(f"Depends takes a function, not {self.dependency!r}; write Depends(open_session)")
        if not isinstance(self.use_cache, bool):
            raise DefinitionError(f"use_cache of Depends must be True or False, not {self.use_cache!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One published parameter of a function."""

    name: str
    """Name in Python."""
    published_name: str
    """Name for callers."""
    annotation: Any
    """Type including Annotated metadata; Any if there is none."""
    description: str | None
    """Description for the model."""
    required: bool
    """True if callers must pass it."""
    default: Any = MISSING
    """Value for a missing argument; MISSING if there is none."""
    python_default: bool = False
    """True for a default in the function's signature, which applies if the argument is omitted from the call."""
    json_default: Any = MISSING
    """The default as JSON data; MISSING if it cannot be serialized."""


def parameter_of(
    name: str,
    annotation: Any,
    python_default: Any,
    documented: str | None,
    local_names: Mapping[str, Any] | None = None,
) -> Parameter:
    """Inspect one parameter.

    Args:
        name: Name in Python.
        annotation: The resolved annotation.
        python_default: Default in the function's signature, or MISSING.
        documented: Description from the docstring.
        local_names: Names for string annotations of local classes.

    Raises:
        DefinitionError: The defaults conflict or do not validate. The message begins with the parameter's name.
    """
    if isinstance(python_default, FieldInfo):  # `city: str = Field(description="…")`
        annotation, python_default = Annotated[annotation, python_default], MISSING
    plain = _unaliased(annotation)
    marks = get_args(plain)[1:] if get_origin(plain) is Annotated else ()
    fields = [mark for mark in marks if isinstance(mark, FieldInfo)]
    mark = next((mark for mark in marks if isinstance(mark, P)), P())
    default, is_own = _default(name, mark, fields, python_default)
    required = mark.required if mark.required is not None else default is MISSING
    if not required and default is MISSING:
        if not _accepts_none(annotation):
            raise DefinitionError(f"the parameter {name!r} is not required and has no default; give P(default=…)")
        default = None
    json_default = MISSING
    if default is not MISSING:
        default, json_default = _validated(name, annotation, default, local_names, is_own=is_own)
    described = [mark.description, *(field.description for field in fields), *(m for m in marks if isinstance(m, str))]
    return Parameter(
        name=name,
        published_name=mark.name or next(filter(None, map(alias_of, fields)), name),
        annotation=annotation,
        description=next((text for text in described if text is not None), documented),
        required=required,
        default=default,
        python_default=is_own,
        json_default=json_default,
    )


def injected_attribute(annotation: Any) -> str | None:
    """Return the attribute of the context that a parameter receives, or ``itself``; None for a published parameter."""
    annotation = _unaliased(annotation)
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        if any(mark is ToolMemoryId or isinstance(mark, ToolMemoryId) for mark in marks):
            return "memory_id"
        return injected_attribute(inner)
    kind = get_origin(annotation) or annotation  # of InvocationContext[App]
    if (attribute := _INJECTED.get(kind) if isinstance(kind, type) else None) is not None:
        return attribute
    return next(filter(None, map(injected_attribute, union_members(annotation))), None)


def dependency_in(annotation: Any, default: Any = MISSING) -> Depends | None:
    """Return the mark of a parameter that a function provides; None for any other parameter."""
    if isinstance(default, Depends):
        return default
    annotation = _unaliased(annotation)
    marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Depends)), None)


def foreign_context(annotation: Any) -> type | None:
    """Return the context class of the official SDK or of FastMCP in an annotation; None if there is none."""
    annotation = bare_type(annotation)
    kind = get_origin(annotation) or annotation
    if isinstance(kind, type):
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] in _LIBRARIES and base.__name__ in _CONTEXTS:
                return base
    return next(filter(None, map(foreign_context, union_members(annotation))), None)


def _default(name: str, mark: P, fields: list[FieldInfo], python_default: Any) -> tuple[Any, bool]:
    """Return the default, and True if it comes from the function's signature."""
    if any(field.default_factory is not None for field in fields):
        raise DefinitionError(f"the parameter {name!r} has a default_factory; give a default instead")
    declared = [
        field.default for field in fields if field.default is not PydanticUndefined and field.default is not ...
    ]
    if mark.default is not MISSING:
        declared.insert(0, mark.default)
    candidates = declared if python_default is MISSING else [python_default, *declared]
    if any(type(other) is not type(candidates[0]) or other != candidates[0] for other in candidates[1:]):
        values = " and ".join(map(repr, candidates))
        raise DefinitionError(f"the parameter {name!r} has conflicting defaults, {values}; keep one")
    if candidates and mark.required and (declared or python_default is MISSING):
        raise DefinitionError(f"the parameter {name!r} is required and has a default; keep one of the two")
    return (candidates[0], python_default is not MISSING) if candidates else (MISSING, False)


def _validated(
    name: str, annotation: Any, default: Any, local_names: Mapping[str, Any] | None, *, is_own: bool
) -> tuple[Any, Any]:
    """Return the default as the function receives it, and as JSON data."""
    if annotation in _EXACT and type(default) is annotation:
        return default, default
    # pydantic accepts a configuration for every list, but not for every type
    listed: Any = GenericAlias(list, (annotation,))
    try:
        adapter: TypeAdapter[list[Any]] = completed(TypeAdapter(listed, config=_DEFAULTS), local_names)
    except SCHEMA_ERRORS as error:
        raise DefinitionError(
            f"the parameter {name!r} has a type with no JSON Schema: {schema_error_text(error)}"
        ) from error
    try:
        value = adapter.validate_python([default], strict=is_own)[0]
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise DefinitionError(
            f"the default {default!r} of the parameter {name!r} does not validate ({problem}); "
            "change the default, or change the annotation to accept it"
        ) from error
    return (default if is_own else value), _as_json(adapter, value)


def _as_json(adapter: TypeAdapter[list[Any]], value: Any) -> Any:
    try:
        data = adapter.dump_python([value], mode="json", by_alias=True, warnings=False)[0]
        json.dumps(data, allow_nan=False)
    except (ValueError, TypeError):
        return MISSING
    return data


def _unaliased(annotation: Any) -> Any:
    """Resolve a type alias (``type Who = Annotated[str, ToolMemoryId]``)."""
    while isinstance(annotation, TypeAliasType):
        annotation = annotation.__value__
    return annotation


def _accepts_none(annotation: Any) -> bool:
    annotation = bare_type(annotation)
    return annotation in (None, NoneType, Any, object) or any(map(_accepts_none, union_members(annotation)))
