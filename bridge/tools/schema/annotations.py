"""Resolution of annotations, and descriptions from docstrings."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    ForwardRef,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from typing_extensions import Format, TypeAliasType, get_annotations

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

_NOT_PARAMETERS = frozenset({"attribute", "attributes"})
"""Sections that docstring_parser lists as parameters, but that describe something else."""

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
"""Sentinel for a missing default."""


@dataclass(frozen=True, slots=True)
class P:
    """Describes a parameter (LangChain4j's @P): ``city: Annotated[str, P("The city's name")]``.

    On a field of a model, dataclass or TypedDict, only the description may be given.
    """

    description: str | None = None
    """Description for the model."""
    name: str | None = None
    """Published name; defaults to the parameter's own."""
    required: bool | None = None
    """True if callers must pass it; defaults to True for parameters without default.

    False without a default means None.
    """
    default: Any = MISSING
    """Value used if the argument is missing, or null where the type does not accept null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """Parsed docstring of a function."""

    description: str | None = None
    """Text outside of the sections, with its first paragraph on one line; None if there is none."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Descriptions, possibly empty, by parameter."""


def read_docstring(text: str | None) -> Docstring:
    """Parse a docstring with sections in Google, NumPy, reST or Epytext style."""
    plain = inspect.cleandoc(text or "").strip()
    if "\n" not in plain and not plain.startswith((":", "@")):  # a single line has no sections
        return Docstring(description=plain or None)
    import docstring_parser  # noqa: PLC0415 - only docstrings with sections need it

    try:
        parsed = docstring_parser.parse(plain)
    except docstring_parser.ParseError:
        return Docstring(description=_joined_first_paragraph(plain))
    parameters = [parameter for parameter in parsed.params if parameter.args[0] not in _NOT_PARAMETERS]
    return Docstring(
        description=_joined_first_paragraph((parsed.description or "") if parsed.meta else plain),
        parameters={
            name.strip(" *"): " ".join((parameter.description or "").split())
            for parameter in parameters
            for name in parameter.arg_name.split(",")
        },
    )


def _joined_first_paragraph(text: str) -> str | None:
    """Join the lines of the first paragraph."""
    first, _, rest = text.strip().partition("\n\n")
    return "\n\n".join(filter(None, [" ".join(first.split()), rest.strip("\n")])) or None


@lru_cache(maxsize=512)
def attribute_descriptions(owner: type) -> dict[str, str]:
    """Return the attribute docstrings of a class and its bases by attribute.

    Empty if the source is not available.
    """
    described: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] not in {"builtins", "enum", "typing", "pydantic", "abc"}:
            described.update(_attribute_docstrings(base))
    return described


def field_descriptions(owner: type) -> dict[str, str]:
    """Return the descriptions that `P` gives to fields of a class.

    Raises:
        DefinitionError: `P` has more than a description, which only applies to parameters.
    """
    described: dict[str, str] = {}
    for name, mark in _marks_of_fields(owner):
        if mark.name is not None or mark.required is not None or mark.default is not MISSING:
            raise DefinitionError(
                f"the field {name!r} of {owner.__qualname__!r} has {mark!r}, of which only the description applies to "
                "fields; give a default as Python does, and another name with pydantic's Field(alias=…)"
            )
        if mark.description is not None:
            described[name] = mark.description
    return described


def _marks_of_fields(owner: Any) -> Iterator[tuple[str, P]]:
    fields = getattr(owner, "__pydantic_fields__", None)
    if fields is None:
        with suppress(NameError, TypeError):  # a name that is only known where the class is defined
            hints = get_type_hints(owner, include_extras=True)
            yield from ((name, mark) for name, hint in hints.items() for mark in _marks_in(hint))
        return
    yield from ((name, mark) for name, field in fields.items() for mark in field.metadata if isinstance(mark, P))


def _marks_in(hint: Any) -> Iterator[P]:
    if get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        yield from (mark for mark in get_args(hint)[1:] if isinstance(mark, P))


def _attribute_docstrings(owner: type) -> dict[str, str]:
    try:
        source = "".join(inspect.findsource(sys.modules[owner.__module__])[0])
        return _docstrings_by_class(source).get(owner.__qualname__, {})
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}


@lru_cache(maxsize=16)
def _docstrings_by_class(source: str) -> dict[str, dict[str, str]]:
    """Return the attribute docstrings in a module's source, by the qualified names of the classes."""
    docstrings: dict[str, dict[str, str]] = {}
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, ast.ClassDef):
            docstrings.setdefault(prefix + node.name, _docstrings_in(node.body))
            prefix += f"{node.name}."
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            prefix += f"{node.name}.<locals>."
        pending.extend((prefix, child) for name in _BLOCKS for child in getattr(node, name, ()))
    return docstrings


def _docstrings_in(statements: list[ast.stmt]) -> dict[str, str]:
    described: dict[str, str] = {}
    for attribute, text in pairwise(statements):
        name = _assigned_name(attribute)
        if name and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            value = text.value.value
            if isinstance(value, str):
                described[name] = inspect.cleandoc(value)
    return described


def _assigned_name(statement: ast.stmt) -> str | None:
    target: ast.expr | None = None
    if isinstance(statement, ast.AnnAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def python_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function.

    Since Python 3.14 annotations are evaluated when they are read: one with a name that is not known, or not yet, is a
    `ForwardRef`, which `resolve_annotation` resolves.

    Raises:
        TypeError: It is not callable, or its signature is not supported.
        ValueError: It has no signature.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def annotation_namespace(function: Any, frame: FrameType | None) -> dict[str, Any]:
    """Collect the names used by a function's string annotations from the enclosing functions and classes.

    Local classes that the annotations name may have string annotations, too; their names are collected as well.

    Call this while the function's definition is executed, with the frame of a function called by it: later, `typing`
    can only resolve the names of the module.
    """
    function = unwrap_function(function)
    enclosing = getattr(function, "__qualname__", "").split(".")[-2::-1]
    scopes = [name for name in enclosing if name != "<locals>"]
    seen: set[type] = set()
    wanted = set(_names_in_annotations(function, seen)) if scopes else set()
    namespace: dict[str, Any] = {}
    while wanted and scopes and frame is not None:
        if frame.f_code.co_name in scopes:  # the body of a class may have ended
            del scopes[: scopes.index(frame.f_code.co_name) + 1]
            names = wanted
            while names := names.intersection(frame.f_locals) - namespace.keys():  # whose keys() are a list since 3.13
                found = {name: frame.f_locals[name] for name in names}
                namespace.update(found)
                names = {name for value in found.values() for name in _names_in(value, seen)}
                wanted |= names
        frame = frame.f_back
    return namespace


def unwrap_function(function: Any) -> Any:
    """Return the function inside partials, bound methods, wrappers and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and not isinstance(function, type) and callable(function):
            function = type(function).__call__
        else:
            return function


def _names_in_annotations(owner: Any, seen: set[type]) -> Iterator[str]:
    annotations = get_annotations(owner, format=Format.FORWARDREF) if callable(owner) else {}
    return (name for annotation in annotations.values() for name in _names_in(annotation, seen))


def _names_in(annotation: Any, seen: set[type]) -> Iterator[str]:
    """Return the names in the text of an annotation, and in those of the local classes that it has."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        with suppress(SyntaxError):  # reported when the tool is made, with the parameter's name
            yield from compile(annotation, "<annotation>", "eval").co_names
    elif isinstance(annotation, type) and "<locals>" in annotation.__qualname__ and annotation not in seen:
        seen.add(annotation)
        for owner in annotation.__mro__:
            yield from _names_in_annotations(owner, seen)
    elif get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _names_in(part, seen)


def resolve_annotation(annotation: Any, module_names: dict[str, Any], local_names: dict[str, Any], what: str) -> Any:
    """Resolve an annotation, or its text, to a type; Any if there is none.

    Args:
        annotation: The annotation.
        module_names: Names of its module.
        local_names: Names of the enclosing scopes; they take precedence.
        what: Description of the annotation for the error message.

    Raises:
        DefinitionError: The annotation uses an unknown name.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, module_names, local_names, include_extras=True)["it"]
    except Exception as error:
        raise DefinitionError(
            f"{what} cannot be resolved: {annotation!r} ({error}); "
            "the names in it must be importable at run time, not only under TYPE_CHECKING"
        ) from error


def bare_type(annotation: Any) -> Any:
    """Strip Annotated, type aliases and NewTypes from a type."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        else:
            return annotation


def union_members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; none for another type."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
