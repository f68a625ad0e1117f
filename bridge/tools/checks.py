"""Checks of declared values, so that a wrong one is refused where it is declared and not when it is used.

Each check raises `DefinitionError`, which names the value as ``what``, such as ``title``, and shows it.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.errors import DefinitionError
from bridge.text import short_repr, with_count
from bridge.tools.schema.annotations import python_signature

if TYPE_CHECKING:
    from types import UnionType

F = TypeVar("F")

_NO_STEPS = frozenset({"CACHE", "NOP", "EXTENDED_ARG"})


def require_type(value: object, kinds: type | UnionType | tuple[type, ...], what: str, taken: str) -> None:
    """Check the type of a value; ``taken`` describes the accepted types: ``text``."""
    if not isinstance(value, kinds):
        raise DefinitionError(f"{what} must be {taken}, not {short_repr(value)}")


def require_name(value: object, what: str) -> None:
    """Check a name, or a URI, which must be printable text.

    Args:
        value: The declared value.
        what: Its name in the error message.

    Raises:
        DefinitionError: The value is not text, is empty, or has control characters or lone surrogates.
    """
    if not isinstance(value, str) or not value or not value.isprintable():
        raise DefinitionError(f"{what} must be text without control characters, not {short_repr(value)}")


def require_seconds(value: object, what: str, *, optional: bool = True, may_be_zero: bool = False) -> None:
    """Check a duration in seconds, which is not negative, zero or NaN; ``optional`` accepts None."""
    if value is None and optional:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value > 0 or (may_be_zero and value == 0)):  # type: ignore[operator]  # it is a number
        least = "of at least 0" if may_be_zero else "above 0"
        raise DefinitionError(
            f"{what} must be a number of seconds {least}{', or None' if optional else ''}, not {short_repr(value)}"
        )


def require_count(value: object, what: str, *, least: int = 1, optional: bool = False) -> None:
    """Check a whole number with a minimum; ``optional`` accepts None."""
    if value is None and optional:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DefinitionError(
            f"{what} must be a whole number of at least {least}{', or None' if optional else ''}, "
            f"not {short_repr(value)}"
        )


def require_methods(value: object, what: str, *names: str, taken: str) -> None:
    """Check that an object, not a class, has methods; ``taken`` describes the accepted objects: ``a chat model``."""
    missing = [name for name in names if not callable(getattr(value, name, None))]
    if isinstance(value, type) and not missing:
        raise DefinitionError(f"{what} must be {taken}, not the class {value.__name__}; give an instance")
    if missing:
        raise DefinitionError(f"{what} must be {taken}, with the method {missing[0]!r}, not {short_repr(value)}")


def require_callable(value: F, arguments: int, what: str, received: str) -> F:
    """Check that a function can be called with a number of positional arguments, and return it.

    Args:
        value: The function.
        arguments: The number of arguments.
        what: The function's name.
        received: Description of the arguments: ``the request and the context``.
    """
    if not callable(value):
        raise DefinitionError(f"{what} must be a function of {received}, not {short_repr(value)}")
    try:
        signature = python_signature(value)
    except (TypeError, ValueError):  # some builtins have none
        return value
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise DefinitionError(
            f"{what} is called with {with_count(arguments, 'argument')}, {received}, but {short_repr(value)} takes "
            f"{signature} ({error})"
        ) from None
    return value


def returns_nothing(function: object) -> bool:
    """Return True for a Python function that returns, and nothing but None; False if that is not certain."""
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if code is None:
        return False
    steps = [each for each in dis.get_instructions(code) if each.opname not in _NO_STEPS]
    returned = [
        each.argval if each.opname == "RETURN_CONST" else before.argval if before.opname == "LOAD_CONST" else ...
        for before, each in pairwise(steps)
        if each.opname in {"RETURN_VALUE", "RETURN_CONST"}
    ]
    return bool(returned) and all(value is None for value in returned)


def listed(values: object, what: str, item: str) -> tuple[Any, ...]:
    """Return the values of a list as a tuple; a single function or object counts as a list of one.

    Args:
        values: The values.
        what: Their name.
        item: Description of one of them: ``a listener``.
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | type):
        return tuple(values)
    if values is None or isinstance(values, str | bytes | Mapping | bool | int | float):
        raise DefinitionError(f"{what} must be a list, each item {item}, not {short_repr(values)}")
    return (values,)
