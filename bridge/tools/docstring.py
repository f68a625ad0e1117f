"""Docstrings as descriptions: of a function, of its parameters, of the attributes of a class."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import lru_cache
from itertools import pairwise

_END_OF_SUMMARY = re.compile(r"\s*$|\s*[:@]\w+|\s*\.\. \w+|\s*[A-Z][A-Za-z]*( [A-Za-z]+)?:\s*$")

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


def summary_of(docstring: str | None) -> str | None:
    """The first paragraph of a docstring, on one line; None where there is none."""
    lines: list[str] = []
    for line in inspect.cleandoc(docstring or "").splitlines():
        if _END_OF_SUMMARY.match(line):
            break
        lines.append(line.strip())
    return " ".join(lines) or None


def parameter_descriptions(docstring: str | None) -> dict[str, str]:
    """The parameters that a docstring describes, in Google's, NumPy's or reST's style, by name."""
    if len((docstring or "").strip().splitlines()) < 2:  # noqa: PLR2004 - one line has no section
        return {}
    import docstring_parser  # noqa: PLC0415 - only docstrings with sections need it

    try:
        parsed = docstring_parser.parse(inspect.cleandoc(docstring or ""))
    except docstring_parser.ParseError:
        return {}
    return {p.arg_name.lstrip("*"): " ".join(p.description.split()) for p in parsed.params if p.description}


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
