"""What an author declares of a tool, checked where it is declared: of its type, and that JSON can carry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.errors import DefinitionError
from bridge.text import short_repr

if TYPE_CHECKING:
    from types import UnionType

_MAX_DEPTH = 20
_HALF = "surrogates not allowed"


def must_be(value: object, kinds: type | UnionType, what: str, taken: str) -> None:
    """Refuse a value of another type.

    Args:
        value: What was declared.
        kinds: What it may be.
        what: What it is, for the message: ``title``.
        taken: What it may be, in words: ``text``.

    Raises:
        DefinitionError: It is something else.
    """
    if not isinstance(value, kinds):
        raise DefinitionError(f"{what} must be {taken}, not {short_repr(value)}")


def must_be_json(what: str, *, allows_halves: bool = False, **parts: object) -> None:
    """Refuse what cannot be written as JSON: nobody could be told of a tool that says it.

    Args:
        what: Whose parts they are, for the message: ``the tool 'add'``.
        allows_halves: Whether texts may hold halves of characters, which JSON can say and UTF-8 cannot: texts of others
            do, and whoever sends them on replaces them.
        parts: What was declared.

    Raises:
        DefinitionError: One of the parts holds something that JSON cannot carry; the message says where.
    """
    if _problem(tuple(parts.values())) is None:
        return
    for name, part in parts.items():
        if (problem := _problem(part)) is not None and not (allows_halves and _HALF in problem):
            where, culprit = _culprit(part)
            raise DefinitionError(
                f"{name}{where} of {what} cannot be written as JSON: {short_repr(culprit)} ({problem}); "
                "give text, numbers, booleans, None, and lists and dicts of these"
            )


def icons_of(value: object, what: str) -> tuple[Mapping[str, Any], ...]:
    """Icons as MCP writes them.

    Raises:
        DefinitionError: They are none.
    """
    icons = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else None
    if icons is None or not all(map(is_icon, icons)):
        raise DefinitionError(
            f"{what} must be a list of icons as MCP writes them, [{{'src': 'https://…'}}], not {short_repr(value)}"
        )
    return icons


def is_icon(value: object) -> bool:
    """Whether something is an icon as MCP writes it."""
    return isinstance(value, Mapping) and isinstance(value.get("src"), str)


def _problem(value: object) -> str | None:
    try:
        to_json(value)
    except Exception as error:  # noqa: BLE001 - whatever a foreign object raises when it is looked at
        return str(error).removeprefix("Error serializing to JSON: ") or type(error).__name__
    return None


def _culprit(value: object) -> tuple[str, object]:
    """Where the first thing is that JSON cannot carry, and what it is."""
    where = ""
    for _ in range(_MAX_DEPTH):  # what contains itself has no end
        inner: Iterable[tuple[object, object]] = ()
        if isinstance(value, Mapping):
            inner = value.items()
        elif isinstance(value, list | tuple):
            inner = enumerate(value)
        found = next(((key, item) for key, item in inner if _problem(item) is not None), None)
        if found is None:
            break
        where, value = f"{where}[{found[0]!r}]", found[1]
    return where, value
