"""Conversion of a function's signature into parameters, a JSON Schema and a validator.

Every problem of the function is reported here, with the names of the function and the parameter.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Required

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from bridge.errors import DefinitionError
from bridge.text import nearest
from bridge.tools.caller import Caller, InvocationParameters
from bridge.tools.context import InvocationContext
from bridge.tools.schema.annotations import python_signature, read_docstring, resolve_annotation, unwrap_function
from bridge.tools.schema.generator import (
    MADE_HERE,
    SCHEMA_ERRORS,
    TOP_LEVEL,
    completed,
    internal_schema,
    public_schema,
    schema_error_text,
)
from bridge.tools.schema.parameters import (
    MISSING,
    Depends,
    P,
    Parameter,
    ToolMemoryId,
    dependency_in,
    foreign_context,
    injected_attribute,
    parameter_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.tools.schema.annotations import Docstring
    from bridge.tools.schema.generator import ExtraArguments

_OURS = {mark.__name__: mark for mark in (Caller, Depends, InvocationContext, InvocationParameters, P, ToolMemoryId)}
"""Names that annotations may use even if they were imported under TYPE_CHECKING only."""

_REFUSED = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values (*args); give it a list parameter instead",
    inspect.Parameter.VAR_KEYWORD: "takes any names (**kwargs); give it a dict parameter instead",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, and arguments come by name; remove the '/'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters, return type and schema of a function."""

    parameters: tuple[Parameter, ...]
    """Published parameters in the function's order."""
    injected: Mapping[str, str]
    """Parameters that receive a part of the call's context, by name: an attribute of the context, or ``itself``."""
    dependencies: Mapping[str, Depends]
    """Parameters whose values functions provide, by name."""
    return_annotation: Any
    """The resolved annotation; `inspect.Signature.empty` without one."""
    local_names: Mapping[str, Any]
    """Names of the scope that defines the function, for string annotations of local classes."""
    description: str | None
    """The docstring without its sections."""
    adapter: TypeAdapter[dict[str, Any]]
    """Validates arguments by published name into keyword arguments.

    Fills in copies of all defaults, except the function's own that are immutable.
    """
    internal_schema: dict[str, Any]
    """Schema that the adapter accepts, with the names of enum members."""
    schema: dict[str, Any]
    """Published schema."""


def signature_of(
    function: Callable[..., Any],
    namespace: Mapping[str, Any] | None = None,
    extra_arguments: ExtraArguments = "forbid",
) -> Signature:
    """Inspect a function.

    Args:
        function: A function, bound method, partial, or object with ``__call__``. Parameters that a partial binds by
            keyword are left out.
        namespace: Names of the scope that defines the function, for its string annotations.
        extra_arguments: Treatment of unknown arguments.

    Raises:
        DefinitionError: The function cannot be a tool; the message names it, the parameter and the remedy.
    """
    source = source_of(function)
    try:
        plain = python_signature(function)
    except (ValueError, TypeError) as error:
        raise DefinitionError(f"{source} has no readable signature; wrap it in a function that has one") from error
    namespace = namespace or {}
    resolve = annotations_of(function, namespace, source)
    docstring = read_docstring(docstring_of(function))
    parameters: list[Parameter] = []
    injected: dict[str, str] = {}
    dependencies: dict[str, Depends] = {}
    for name, parameter in _passed_by_name(function, plain, source).items():
        annotation = resolve(f"the annotation of the parameter {name!r}", parameter.annotation)
        if (dependency := dependency_in(annotation, parameter.default)) is not None:
            dependencies[name] = dependency
            continue
        if attribute := injected_attribute(annotation):
            injected[name] = attribute
            continue
        _refuse_foreign_context(name, annotation, source)
        default = MISSING if parameter.default is parameter.empty else parameter.default
        try:
            documented = docstring.parameters.get(name) or None
            parameters.append(parameter_of(name, annotation, default, documented, namespace))
        except DefinitionError as error:
            raise DefinitionError(f"{source}: {error}") from error.__cause__
    _refuse_clashes(parameters, source)
    if inspect.getdoc(unwrap_function(function)) is not None:  # a class describes the parameters of its constructor
        _refuse_unknown(docstring, plain.parameters, source)
    adapter, schema = _shape(parameters, source, extra_arguments, namespace)
    returned = plain.return_annotation
    if returned is not inspect.Signature.empty:
        returned = resolve("the return annotation", returned)
    return Signature(
        parameters=tuple(parameters),
        injected=injected,
        dependencies=dependencies,
        return_annotation=returned,
        local_names=namespace,
        description=docstring.description,
        adapter=adapter,
        internal_schema=schema,
        schema=public_schema(schema),
    )


def _passed_by_name(
    function: Callable[..., Any], plain: inspect.Signature, source: str
) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that calls fill in, without those that a partial binds.

    Raises:
        DefinitionError: One cannot be passed by name.
    """
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    found = {name: parameter for name, parameter in plain.parameters.items() if name not in fixed}
    if next(iter(found), "") == "self":
        raise DefinitionError(
            f"{source} needs an instance: its parameter 'self' is not an argument that a caller can pass; "
            "pass the method of an object, or the object with its decorated methods; "
            "in a function outside of a class, rename the parameter"
        )
    for name, parameter in found.items():
        if parameter.kind in _REFUSED:
            raise DefinitionError(f"the parameter {name!r} of {source} {_REFUSED[parameter.kind]}")
    return found


def source_of(function: Any) -> str:
    """Return the origin of a function for messages: ``function 'add' (tools.py:3)``."""
    bottom = unwrap_function(function)
    name = getattr(bottom, "__qualname__", None) or repr(bottom)
    name = name.rpartition("<locals>.")[2]
    kind = "method" if "." in name else "function"
    code = getattr(bottom, "__code__", None)
    return f"{kind} {name!r} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else f"{kind} {name!r}"


def docstring_of(function: Any) -> str | None:
    """Return a function's docstring; for an object with ``__call__`` that of ``__call__`` or else of its class."""
    if isinstance(function, functools.partial):
        return docstring_of(function.func)
    if inspect.isroutine(function):
        return inspect.getdoc(function)
    return inspect.getdoc(type(function).__call__) or inspect.getdoc(type(function))


def annotations_of(function: Any, namespace: Mapping[str, Any], source: str) -> Callable[[str, Any], Any]:
    """Return a function that resolves the annotations of one function."""
    bottom = unwrap_function(function)
    module_names = {**_OURS, **getattr(bottom, "__globals__", {})}
    local_names = {**_closure_of(bottom), **namespace}
    return lambda what, annotation: resolve_annotation(annotation, module_names, local_names, f"{what} of {source}")


def _closure_of(function: Any) -> dict[str, Any]:
    """Return the variables that a nested function uses and that have a value already."""
    variables = {}
    if inspect.isfunction(function):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is assigned later
                variables[name] = cell.cell_contents
    return variables


def _refuse_foreign_context(name: str, annotation: Any, source: str) -> None:
    if (foreign := foreign_context(annotation)) is not None:
        raise DefinitionError(
            f"the parameter {name!r} of {source} takes the {foreign.__name__} of {foreign.__module__!r}, which calls "
            "do not have here; use InvocationContext: from bridge import InvocationContext"
        )


def _refuse_clashes(parameters: Iterable[Parameter], source: str) -> None:
    seen: dict[str, str] = {}
    for parameter in parameters:
        other = seen.setdefault(parameter.published_name, parameter.name)
        if other != parameter.name:
            raise DefinitionError(
                f"the parameters {other!r} and {parameter.name!r} of {source} are both published as "
                f"{parameter.published_name!r}; give one another name with P(name=…)"
            )


def _refuse_unknown(docstring: Docstring, parameters: Mapping[str, object], source: str) -> None:
    for name in docstring.parameters:
        if name not in parameters:
            near = nearest(name, parameters)
            meant = f"did you mean {near[0]!r}?" if near else "remove it, or name a parameter"
            raise DefinitionError(
                f"the docstring of {source} describes {name!r}, which is not one of its parameters; {meant}"
            )


def _shape(
    parameters: list[Parameter], source: str, extra_arguments: ExtraArguments, namespace: Mapping[str, Any]
) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    try:
        adapter = completed(_adapter(parameters, extra_arguments), namespace)
        schema = internal_schema(adapter)
    except DefinitionError as error:
        raise DefinitionError(f"{source}: {error}") from None
    except SCHEMA_ERRORS as error:
        for parameter in parameters:
            _refuse_shapeless(parameter, source)
        raise DefinitionError(f"the parameters of {source} have no JSON Schema: {schema_error_text(error)}") from error
    properties = schema.get("properties", {})
    for parameter in parameters:
        if parameter.json_default is not MISSING and not parameter.required:
            properties[parameter.published_name]["default"] = parameter.json_default
    root = {
        "type": "object",
        "properties": properties,
        "required": schema.get("required"),
        "additionalProperties": schema.get("additionalProperties"),
        "$defs": schema.get("$defs"),
    }
    return adapter, {key: value for key, value in root.items() if value is not None}


def _refuse_shapeless(parameter: Parameter, source: str) -> None:
    try:
        internal_schema(_adapter([parameter]))
    except SCHEMA_ERRORS as error:
        raise DefinitionError(
            f"the parameter {parameter.name!r} of {source} has a type with no JSON Schema: {schema_error_text(error)}"
        ) from error


def _adapter(
    parameters: Iterable[Parameter], extra_arguments: ExtraArguments = "forbid"
) -> TypeAdapter[dict[str, Any]]:
    items: dict[str, Any] = {}
    for parameter in parameters:
        field: dict[str, Any] = {"alias": parameter.published_name}
        if parameter.description is not None:
            field["description"] = parameter.description
        if parameter.default is not MISSING and (not parameter.python_default or _is_mutable(parameter)):
            field["default"] = parameter.default
        presence: Any = Required if parameter.required else NotRequired
        items[parameter.name] = presence[Annotated[parameter.annotation, Field(**field)]]
    make: Any = TypedDict  # functional form; its items are unknown to type checkers
    shape = with_config(ConfigDict(**TOP_LEVEL, extra=extra_arguments))(make("Arguments", items))
    shape.__module__ = MADE_HERE
    return TypeAdapter(shape)


def _is_mutable(parameter: Parameter) -> bool:
    """Return True if calls must not share the default; pydantic copies a default that is not hashable."""
    if parameter.json_default is MISSING:
        return False
    try:
        hash(parameter.default)
    except TypeError:
        return True
    return False
