"""Transforms: wrappers that rename, prefix or filter tools without changing their behaviour.

A renamed tool keeps its executor, and executors of remote tools store the remote name themselves.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING

from bridge.tools.function import one_tool, tools_found_in
from bridge.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

_HASH_CHARS = 8


def renamed(tool: object, name: str) -> Tool:
    """Return the tool under another name; the same object if it already has that name.

    Args:
        tool: A Tool or function, or another source with one tool (see `tools_from`).
        name: The new name.

    Raises:
        DefinitionError: The source has no tool, or several.
    """
    if not isinstance(tool, Tool):
        tool = one_tool(tool)
    return tool if tool.name == name else replace(tool, specification=replace(tool.specification, name=name))


def prefixed(tools: object, prefix: str) -> Iterator[Tool]:
    """Add a prefix to the name of each tool: ``prefixed(tools, "github_")``.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        prefix: The prefix.

    Raises:
        DefinitionError: A source has no tools.
    """
    return (renamed(tool, prefix + tool.name) for tool in tools_found_in(tools))


def filtered(
    tools: object,
    keep: Callable[[Tool], bool] = lambda _: True,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
) -> Iterator[Tool]:
    """Select the tools that pass all the filters.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        keep: Returns True for a tool to select.
        include: The only names to select; None for all.
        exclude: Names to leave out.

    Raises:
        DefinitionError: A source has no tools.
    """
    return (
        tool
        for tool in tools_found_in(tools)
        if (include is None or tool.name in include) and tool.name not in exclude and keep(tool)
    )


def safe_names(names: Iterable[str], *, max_chars: int = 64, forbidden: str = r"[^A-Za-z0-9_-]") -> dict[str, str]:
    """Map names to unique names that a chat model's provider accepts.

    Forbidden characters become underscores. A hash of the full name is appended if the name is too long, or if several
    names would become equal; a name that is safe already stays unchanged. The result depends on the set of names, not
    on their order.

    Args:
        names: The original names; duplicates are ignored.
        max_chars: Maximum length of a safe name.
        forbidden: Regular expression for one forbidden character.

    Returns:
        The safe name for each name; safe names are unique.
    """
    candidates = {name: re.sub(forbidden, "_", name) for name in names}
    counts = Counter(candidates.values())
    safe = {
        name: candidate
        for name, candidate in candidates.items()
        if len(candidate) <= max_chars and (name == candidate or counts[candidate] == 1)
    }
    taken = set(safe.values())
    for name in sorted(candidates.keys() - safe.keys()):
        safe[name] = next(
            candidate for candidate in _hashed(candidates[name], name, max_chars) if candidate not in taken
        )
        taken.add(safe[name])
    return {name: safe[name] for name in candidates}


def _hashed(candidate: str, name: str, max_chars: int) -> Iterator[str]:
    """Yield names with a hash; several, since another tool may already be named like the first."""
    for attempt in count():
        digest = sha256(f"{name}{' ' * attempt}".encode()).hexdigest()
        yield f"{candidate[: max_chars - _HASH_CHARS - 1]}_{digest[:_HASH_CHARS]}"
