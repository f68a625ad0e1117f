"""Selection of operations: names, methods with paths and tags that are allowed, and those that are excluded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError
from bridge.openapi.document import METHODS
from bridge.text import escape_controls, nearest, with_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.openapi.document import OpenApiDocument, Operation

_MAX_SHOWN = 100
_TAG = "tag:"
_EXCLUDED = "!"
_METHOD_AND_PATH = re.compile(rf"(?P<method>\*|{'|'.join(METHODS)})\s+(?P<path>\S.*)", re.IGNORECASE)


class NoneChosenError(DefinitionError):
    """No operation of a document is chosen; the message lists them."""


def select(document: OpenApiDocument, patterns: Iterable[str]) -> list[Operation]:
    """Return the operations that match a pattern, in the order of the document.

    Args:
        document: The document.
        patterns: operationIds, ``METHOD /path`` or ``tag:NAME``; ``*`` stands for any text, ``?`` for a character. What
            a pattern after ``!`` matches is left out, wherever that stands.

    Raises:
        NoneChosenError: There are no patterns, or only some after ``!``; the message lists the operations.
        DefinitionError: A pattern matches nothing; the message lists the operations. Or nothing is left.
    """
    patterns = [pattern.strip() for pattern in patterns]
    if all(pattern.startswith(_EXCLUDED) for pattern in patterns):
        raise NoneChosenError(
            f"no operation of {document.source} is chosen, and none is published unless it is named: by its "
            f"operationId, 'METHOD /path' or 'tag:NAME', each with * for any text. {_listed(document)}"
        )
    chosen: set[int] = set()
    excluded: set[int] = set()
    for pattern in patterns:
        matches = _matcher(pattern.removeprefix(_EXCLUDED).strip())
        found = {number for number, operation in enumerate(document.operations) if matches(operation)}
        if not found:
            near = nearest(pattern, [word for each in document.operations for word in (each.name, each.label)])
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise DefinitionError(f"no operation of {document.source} matches {pattern!r}{hint} {_listed(document)}")
        (excluded if pattern.startswith(_EXCLUDED) else chosen).update(found)
    if not chosen - excluded:
        raise DefinitionError(f"all chosen operations of {document.source} are left out by patterns after '!'")
    return [document.operations[number] for number in sorted(chosen - excluded)]


def naming(patterns: Iterable[str]) -> Callable[[Operation], bool]:
    """Return a test for operations that a pattern names by themselves: by operationId, or by method and path."""
    named = [
        _matcher(pattern)
        for pattern in map(str.strip, patterns)
        if not (set("*?") & set(pattern) or pattern.startswith((_EXCLUDED, _TAG)))
    ]
    return lambda operation: any(matches(operation) for matches in named)


def _matcher(pattern: str) -> Callable[[Operation], bool]:
    if pattern.startswith(_TAG):
        tag = _regex(pattern.removeprefix(_TAG).strip())
        return lambda operation: any(map(tag.fullmatch, operation.tags))
    if match := _METHOD_AND_PATH.fullmatch(pattern):
        method, path = match["method"].upper(), _regex(match["path"])
        return lambda operation: method in {"*", operation.method} and path.fullmatch(operation.path) is not None
    name = _regex(pattern)
    return lambda operation: any(map(name.fullmatch, (operation.name, operation.operation_id)))


def _regex(pattern: str) -> re.Pattern[str]:
    """Pattern of a text with ``*`` and ``?``; several stars are one, so that matching stays fast."""
    parts = (".*" if part.startswith("*") else "." if part == "?" else re.escape(part) for part in _parts(pattern))
    return re.compile("".join(parts), re.DOTALL)


def _parts(pattern: str) -> list[str]:
    return re.findall(r"\*+|\?|[^*?]+", pattern)


def _listed(document: OpenApiDocument) -> str:
    """List what there is to choose from."""
    operations = document.operations
    if not operations:
        return "It has no operations."
    lines = [
        f"  {operation.label}  {operation.name}" + (f"  tags: {', '.join(operation.tags)}" if operation.tags else "")
        for operation in operations[:_MAX_SHOWN]
    ]
    if len(operations) > _MAX_SHOWN:
        lines.append(f"  … and {len(operations) - _MAX_SHOWN} more")
    return f"It has {with_count(len(operations), 'operation')}:\n" + "\n".join(map(escape_controls, lines))
