"""Transforms: small wrappers that change how tools appear and never what they do.

A renamed tool still calls the right thing, because its executor is untouched and keeps a remote name itself.
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
    """The same tool under another name; the very tool where it has that name already.

    Args:
        tool: A Tool or function, or anything else that holds one tool (see `tools_from`).
        name: The other name.

    Raises:
        DefinitionError: There is no tool in it, or several.
    """
    if not isinstance(tool, Tool):
        tool = one_tool(tool)
    return tool if tool.name == name else replace(tool, specification=replace(tool.specification, name=name))


def prefixed(tools: object, prefix: str) -> Iterator[Tool]:
    """The same tools, each name with a prefix before it: ``prefixed(tools, "github_")``.

    Args:
        tools: Anything that a ToolBox takes (see `tools_from`); a list may be empty.
        prefix: What stands before each name.

    Raises:
        DefinitionError: A source holds no tools.
    """
    return (renamed(tool, prefix + tool.name) for tool in tools_found_in(tools))


def filtered(
    tools: object,
    keep: Callable[[Tool], bool] = lambda _: True,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
) -> Iterator[Tool]:
    """Those of the tools that pass all the tests.

    Args:
        tools: What to choose from: anything that a ToolBox takes (see `tools_from`); a list may be empty.
        keep: Says of a tool whether it stays.
        include: The only names that stay; None for no such limit.
        exclude: Names that do not stay.

    Raises:
        DefinitionError: A source holds no tools.
    """
    return (
        tool
        for tool in tools_found_in(tools)
        if (include is None or tool.name in include) and tool.name not in exclude and keep(tool)
    )


def safe_names(names: Iterable[str], *, max_chars: int = 64, forbidden: str = r"[^A-Za-z0-9_-]") -> dict[str, str]:
    """A name for each name that a chat model's provider accepts; the result is reversible and knows no order.

    Forbidden characters become underscores. A hash of the whole name is added where a name had to be cut, or where two
    would still be the same, to all of those but one that is safe as it is: the answer for a name depends on the set of
    names, and not on their order.

    Args:
        names: The names as they are; each counts once.
        max_chars: How long a safe name may be.
        forbidden: A regular expression for one character that a safe name must not have.

    Returns:
        Each name with its safe one; no two safe ones are the same.
    """
    wanted = {name: re.sub(forbidden, "_", name) for name in names}
    rivals = Counter(wanted.values())
    safe = {
        name: candidate
        for name, candidate in wanted.items()
        if len(candidate) <= max_chars and (name == candidate or rivals[candidate] == 1)
    }
    taken = set(safe.values())
    for name in sorted(wanted.keys() - safe.keys()):
        safe[name] = next(each for each in _hashed(wanted[name], name, max_chars) if each not in taken)
        taken.add(safe[name])
    return {name: safe[name] for name in wanted}


def _hashed(candidate: str, name: str, max_chars: int) -> Iterator[str]:
    """Names with a hash; more than one, since somebody may have named a tool so that it looks like the first."""
    for attempt in count():
        digest = sha256(f"{name}{' ' * attempt}".encode()).hexdigest()
        yield f"{candidate[: max_chars - _HASH_CHARS - 1]}_{digest[:_HASH_CHARS]}"
