"""A ToolBox: tools by name, in order, with news of its changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError, NameClashError, UnknownToolError
from bridge.text import nearest
from bridge.tools.function import tools_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.tools.tool import Tool

MAX_NAME_CHARS = 128
"""How long a tool's name may be (MCP, "Tools", tool names)."""

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME_CHARS}}}")


class ToolBox:
    """Tools by name, in the order in which they came.

    Args:
        sources: Tools, functions, objects, modules, or iterables of these (see `tools_from`).

    Raises:
        DefinitionError: A source holds no tools, or a name is outside ``[A-Za-z0-9_.-]{1,128}``.
        NameClashError: Two tools have one name.
    """

    def __init__(self, *sources: object) -> None:
        self._tools: dict[str, Tool] = {}
        self._listeners: list[Callable[[], None]] = []
        self.add(*sources)

    @classmethod
    def of(cls, *sources: object) -> ToolBox:
        """The ToolBox itself, where that is the only source, so that its changes are seen; else one of the sources.

        Raises:
            DefinitionError: As for the constructor.
            NameClashError: As for the constructor.
        """
        only = sources[0] if len(sources) == 1 else None
        return only if isinstance(only, ToolBox) else cls(*sources)

    def add(self, *sources: object) -> None:
        """Add tools after those that are here: all of them, or none where one is refused.

        Raises:
            DefinitionError: As for the constructor.
            NameClashError: As for the constructor.
        """
        added = _admitted(self._tools, (tool for source in sources for tool in tools_from(source)))
        if added:
            self._tools.update(added)
            self._tell()

    def remove(self, *names: str) -> None:
        """Take tools away.

        Raises:
            UnknownToolError: One of the names is not here; nothing was removed.
        """
        for name in names:
            self.get(name)
        self.replace([tool for tool in self if tool.name not in names])

    def replace(self, tools: Iterable[Tool]) -> None:
        """Let exactly these tools be here, and tell the listeners if that changes anything.

        Raises:
            DefinitionError: A name is outside ``[A-Za-z0-9_.-]{1,128}``; nothing was changed.
            NameClashError: Two tools have one name; nothing was changed.
        """
        admitted = _admitted({}, tools)
        if list(admitted.values()) != list(self._tools.values()):
            self._tools = admitted
            self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, in the thread that made it; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def find(self, name: str) -> Tool | None:
        """The tool of that name, or None; costs the same however many there are."""
        return self._tools.get(name)

    def get(self, name: str) -> Tool:
        """The tool of that name.

        Raises:
            UnknownToolError: There is none; the error suggests the nearest names.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownToolError(name, nearest(name, self._tools, 3))
        return tool

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))  # tools may be added meanwhile

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"ToolBox({', '.join(self._tools)})"


def _admitted(present: Mapping[str, Tool], tools: Iterable[Tool]) -> dict[str, Tool]:
    """The tools by name, which can stand beside those that are there."""
    admitted: dict[str, Tool] = {}
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise DefinitionError(
                f"the name {tool.name!r} of {tool.source} is not allowed: "
                "1 to 128 ASCII letters, digits, underscores, dots or hyphens; give it such a name with @tool(name=…), "
                "or with bridge.renamed"
            )
        if (other := present.get(tool.name) or admitted.get(tool.name)) is not None:
            raise NameClashError(tool.name, other.source, tool.source)
        admitted[tool.name] = tool
    return admitted
