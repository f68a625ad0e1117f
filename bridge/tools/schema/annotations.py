"""Resolving annotations; descriptions from docstrings.

Docstrings as descriptions: of a function, of its parameters, of the attributes of a class.

Scope: the names that the annotations of a function use, and the types that they mean.
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_NOT_PARAMETERS = frozenset({"attribute", "attributes"})
"""Sections that docstring_parser lists among the parameters, and that describe something else."""

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """The docstring of a function."""

    description: str | None = None
    """The text before and between the sections, its first paragraph on one line; None where there is none."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parameters that it names, with their descriptions, which may be empty."""


def read_docstring(text: str | None) -> Docstring:
    """Read a docstring with sections in Google's, NumPy's, reST's or Epytext's style."""
    plain = inspect.cleandoc(text or "").strip()
    if "\n" not in plain and not plain.startswith((":", "@")):  # one line of text has no section
        return Docstring(description=plain or None)
    import docstring_parser  # noqa: PLC0415 - only docstrings with sections need it

    try:
        parsed = docstring_parser.parse(plain)
    except docstring_parser.ParseError:
        return Docstring(description=_flowing(plain))
    named = [each for each in parsed.params if each.args[0] not in _NOT_PARAMETERS]
    return Docstring(
        description=_flowing((parsed.description or "") if parsed.meta else plain),
        parameters={
            name.strip(" *"): " ".join((each.description or "").split())
            for each in named
            for name in each.arg_name.split(",")
        },
    )


def _flowing(text: str) -> str | None:
    """A text whose first paragraph is on one line."""
    first, _, rest = text.strip().partition("\n\n")
    return "\n\n".join(filter(None, [" ".join(first.split()), rest.strip("\n")])) or None


@lru_cache(maxsize=512)
def attribute_descriptions(owner: type) -> dict[str, str]:
    """The docstrings that follow the attributes of a class, inherited ones included, by attribute.

    Empty where the source cannot be read.
    """
    described: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] not in {"builtins", "enum", "typing", "pydantic", "abc"}:
            described.update(_attribute_docstrings(base))
    return described


def _attribute_docstrings(owner: type) -> dict[str, str]:
    try:
        source = "".join(inspect.findsource(sys.modules[owner.__module__])[0])
        return _docstrings_by_class(source).get(owner.__qualname__, {})
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}


@lru_cache(maxsize=16)
def _docstrings_by_class(source: str) -> dict[str, dict[str, str]]:
    """The docstrings of attributes in a module's source, by the qualified names of their classes."""
    found: dict[str, dict[str, str]] = {}
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, ast.ClassDef):
            found.setdefault(prefix + node.name, _docstrings_in(node.body))
            prefix += f"{node.name}."
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            prefix += f"{node.name}.<locals>."
        pending.extend((prefix, child) for child in _statements_in(node))
    return found


def _statements_in(node: ast.AST) -> list[ast.AST]:
    return [child for name in _BLOCKS for child in getattr(node, name, ())]


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


def annotation_namespace(function: Any, frame: FrameType | None) -> dict[str, Any]:
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


def resolve_annotation(annotation: Any, known: dict[str, Any], nearby: dict[str, Any], what: str) -> Any:
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
