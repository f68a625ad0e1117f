"""Scope: the names that the annotations of a function use, and the types that they mean."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from types import FrameType


def scope_of(function: Any, frame: FrameType | None) -> dict[str, Any]:
    """The names that a function's string annotations use, found in the functions and classes around its definition.

    Only there are they known, and only while the function is being defined: once it is a tool, `typing` finds no more
    than the names of the module.

    Args:
        function: The function, while its definition is being executed.
        frame: A frame that the definition called.
    """
    function = inspect.unwrap(function)
    around = getattr(function, "__qualname__", "").split(".")[-2::-1]
    scopes = [name for name in around if name != "<locals>"]
    wanted = _names_in_annotations(function) if scopes else set()
    found: dict[str, Any] = {}
    while wanted and scopes and frame is not None:
        if frame.f_code.co_name == scopes[0]:
            del scopes[0]
            for name in wanted & frame.f_locals.keys():
                found.setdefault(name, frame.f_locals[name])
        frame = frame.f_back
    return found


def _names_in_annotations(function: Any) -> set[str]:
    names: set[str] = set()
    for annotation in getattr(function, "__annotations__", {}).values():
        if isinstance(annotation, str):
            try:
                names.update(compile(annotation, "<annotation>", "eval").co_names)
            except SyntaxError:
                continue  # said when the tool is made, with the parameter's name
    return names - getattr(function, "__globals__", {}).keys()


def resolved(annotation: Any, known: dict[str, Any], nearby: dict[str, Any], what: str) -> Any:
    """The type that an annotation is; Any where there is none.

    Args:
        annotation: The annotation, or its text.
        known: The names of its module.
        nearby: The names of the scopes around it, which come before.
        what: What to call it in an error.

    Raises:
        DefinitionError: It names what is not there.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, known, nearby, include_extras=True)["it"]
    except Exception as error:
        raise DefinitionError(
            f"{what} cannot be resolved: {annotation!r} ({error}); "
            "what it names must be importable at run time, not only under TYPE_CHECKING"
        ) from error
