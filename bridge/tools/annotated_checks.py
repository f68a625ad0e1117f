"""Checks of declared values against the annotations of a dataclass or a function, for options of simple types.

    @dataclass(frozen=True)
    class ServerConfig:
        timeout_seconds: float = 60.0
        include: tuple[str, ...] | None = None

        def __post_init__(self) -> None:
            check_fields(self)

    ServerConfig(include="add")  # include of ServerConfig must be a list of texts, or None, not 'add'

Texts, numbers, flags, choices, functions, mappings and lists are checked, and classes that the module defines or
imports. An annotation with anything else, such as a class that is imported for type checking alone, is not.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import cache, partial, wraps
from os import PathLike
from types import UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin

from bridge.errors import DefinitionError
from bridge.text import short_repr
from bridge.tools.checks import require_count, require_seconds

P = ParamSpec("P")
R = TypeVar("R")

_LISTS = frozenset({"tuple", "list", "set", "frozenset", "Collection", "Iterable", "Sequence"})


class _Kind(NamedTuple):
    """One of the types that a value may have."""

    taken: str
    """Description for messages."""
    accepts: Callable[[Any], bool]


def check_fields(value: object, *, may_be_zero: Iterable[str] = ()) -> None:
    """Check the fields of a dataclass against their annotations.

    Fields whose names end with ``_seconds`` are durations, above 0; other whole numbers are at least 1.

    Args:
        value: The instance, which the class's ``__post_init__`` passes.
        may_be_zero: Fields that may be 0, too.

    Raises:
        DefinitionError: A field has another type, or a number is too small.
    """
    kind = type(value).__name__
    zero = frozenset(may_be_zero)
    for name, check in _field_checks(type(value)):  # type: ignore[arg-type]  # every class is hashable
        check(getattr(value, name), f"{name} of {kind}", name in zero)


def checked(may_be_zero: Iterable[str] = ()) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function whose arguments are checked against the annotations of its parameters.

    They are checked as fields are; see `check_fields`.

    Args:
        may_be_zero: Parameters that may be 0, too.
    """
    zero = frozenset(may_be_zero)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checking(*arguments: P.args, **named: P.kwargs) -> R:
            checks = _parameter_checks(function)
            for name, value in (*zip(checks, arguments, strict=False), *named.items()):
                if (check := checks.get(name)) is not None:
                    check(value, name, name in zero)
            return function(*arguments, **named)

        return checking

    return decorate


_Check = Callable[[Any, str, bool], None]
"""Check of a value, with its name in messages; True if it may be zero."""


@cache
def _field_checks(kind: Any) -> list[tuple[str, _Check]]:
    found: dict[str, _Check] = {}
    is_shown: bool = kind.__dataclass_params__.repr
    shown = {field.name: field.repr and is_shown for field in fields(kind) if field.init}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__])
        for name, annotation in inspect.get_annotations(base).items():
            if name in shown and (check := _check_of(name, annotation, names, is_secret=not shown[name])) is not None:
                found[name] = check
    return [*found.items()]


@cache
def _parameter_checks(function: Callable[..., Any]) -> dict[str, _Check | None]:
    names = vars(sys.modules[function.__module__])
    parameters = inspect.signature(function).parameters.values()
    return {each.name: _check_of(each.name, each.annotation, names) for each in parameters}


def _check_of(name: str, annotation: Any, names: Mapping[str, Any], *, is_secret: bool = False) -> _Check | None:
    """Return the check of a name with an annotation, which is text; None if the annotation has other types."""
    parts = _alternatives(ast.parse(annotation, mode="eval").body) if isinstance(annotation, str) else []
    texts = {ast.unparse(part) for part in parts}
    if texts - {"None"} in ({"float"}, {"int"}):
        optional = "None" in texts
        if name.endswith("_seconds"):
            return lambda value, what, zero: require_seconds(value, what, optional=optional, may_be_zero=zero)
        if "int" in texts:
            return lambda value, what, zero: require_count(value, what, least=0 if zero else 1, optional=optional)
    kinds = [_kind_of(part, names) for part in parts]
    if not kinds or None in kinds:
        return None
    return partial(_require, [kind for kind in kinds if kind is not None], is_secret)


def _require(kinds: list[_Kind], is_secret: bool, value: object, what: str, _: bool) -> None:
    if not any(kind.accepts(value) for kind in kinds):
        taken = ", or ".join(kind.taken for kind in kinds)
        given = f"a value of the type {type(value).__name__}" if is_secret else short_repr(value)
        raise DefinitionError(f"{what} must be {taken}, not {given}")


def _alternatives(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]


def _kind_of(node: ast.expr, names: Mapping[str, Any]) -> _Kind | None:  # noqa: PLR0911 - a return for each kind
    text = ast.unparse(node)
    if text == "None":
        return _Kind("None", lambda value: value is None)
    if text in _SIMPLE:
        return _SIMPLE[text]
    outer, _, inner = text.partition("[")
    inner = inner.removesuffix("]")
    if outer == "Literal":
        return _choice(ast.literal_eval(f"({inner},)"))
    if outer == "Callable":
        return _FUNCTION
    if outer == "Mapping":
        return _MAPPING_OF_TEXTS if inner == "str, str" else _MAPPING
    if outer in _LISTS:
        return _LIST_OF_TEXTS if inner.removesuffix(", ...") == "str" else _LIST
    return _known_kind(names.get(text), names)


def _known_kind(known: Any, names: Mapping[str, Any]) -> _Kind | None:
    """Return the kind of a class or an alias; None if it is neither."""
    if isinstance(known, str):  # an alias for type checking
        return _kind_of(ast.parse(known, mode="eval").body, names)
    if get_origin(known) is Literal:
        return _choice(get_args(known))
    if get_origin(known) is Callable:
        return _FUNCTION
    classes = tuple(
        get_origin(each) or each for each in (get_args(known) if isinstance(known, UnionType) else (known,))
    )
    if not all(isinstance(each, type) and not getattr(each, "_is_protocol", False) for each in classes):
        return None
    taken = " or ".join(f"{'an' if each.__name__[0] in 'AEIOU' else 'a'} {each.__name__}" for each in classes)
    return _Kind(taken, lambda value: isinstance(value, classes))


def _choice(choices: tuple[Any, ...]) -> _Kind:
    return _Kind(" or ".join(map(repr, choices)), lambda value: isinstance(value, str | int) and value in choices)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _are_texts(values: Iterable[Any]) -> bool:
    return not isinstance(values, Collection) or all(isinstance(each, str) for each in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


_FUNCTION = _Kind("a function", callable)
_LIST = _Kind("a list", _is_list)
_LIST_OF_TEXTS = _Kind("a list of texts", lambda value: _is_list(value) and _are_texts(value))
_MAPPING = _Kind("a mapping", lambda value: isinstance(value, Mapping))
_MAPPING_OF_TEXTS = _Kind(
    "a mapping of texts to texts", lambda value: isinstance(value, Mapping) and _are_texts([*value, *value.values()])
)
_SIMPLE = {
    "str": _Kind("text", lambda value: isinstance(value, str)),
    "bytes": _Kind("bytes", lambda value: isinstance(value, bytes)),
    "bool": _Kind("True or False", lambda value: isinstance(value, bool)),
    "float": _Kind("a number", _is_number),
    "Path": _Kind("a path", lambda value: isinstance(value, PathLike)),
}
