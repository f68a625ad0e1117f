"""ToolBox: an ordered collection of tools by name, with change notifications."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, UnknownToolError
from bridge.text import nearest
from bridge.tools.box import Box, TransformedBox
from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.tool import Tool, ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.tool import ToolExecutionResult

MAX_NAME_CHARS = 128
"""Maximum length of a tool's name (MCP, "Tools", tool names)."""
Transform = Callable[[tuple[Tool, ...]], Iterable[Tool]]
"""Returns changed tools."""

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME_CHARS}}}")


class ToolBox(Box[Tool]):
    """Tools by name, in insertion order.

    Args:
        sources: Tools, functions, objects, modules, or iterables of these (see `tools_from`).

    Raises:
        DefinitionError: A source has no tools, or a name does not match ``[A-Za-z0-9_.-]{1,128}``.
        NameClashError: Two tools have the same name.
    """

    noun = "tools"
    kinds = (Tool,)

    @classmethod
    def of(cls, *sources: object) -> ToolBox:
        """Return the ToolBox itself if it is the only source, so that later changes apply; otherwise create a new one.

        Raises:
            DefinitionError: See the constructor.
            NameClashError: See the constructor.
        """
        only = sources[0] if len(sources) == 1 else None
        return only if isinstance(only, ToolBox) else cls(*sources)

    def key_of(self, item: Tool) -> str:
        """Return the name of a tool.

        Raises:
            DefinitionError: The name does not match ``[A-Za-z0-9_.-]{1,128}``.
        """
        if not _NAME.fullmatch(item.name):
            raise DefinitionError(
                f"the name {item.name!r} of {item.source} is not allowed: "
                "1 to 128 ASCII letters, digits, underscores, dots or hyphens; give it such a name with @tool(name=…), "
                "or with bridge.renamed"
            )
        return item.name

    def remove(self, *names: str) -> None:
        """Remove tools.

        Raises:
            UnknownToolError: One of the names does not exist; no tool was removed.
        """
        for name in names:
            if not self.has(name):
                self.get(name)
        super().remove(*names)

    def transformed(self, transform: Transform) -> TransformedToolBox:
        """Return a box with the changed tools of this one; it follows later changes.

        Args:
            transform: Receives the current tools and returns those of the new box, for example with `bridge.filtered`,
                `bridge.prefixed`, `bridge.tools.respecified` or `bridge.wrapped`. Called after each change.

        Raises:
            DefinitionError: See the constructor.
            NameClashError: See the constructor.
        """
        return TransformedToolBox(self, transform)

    def find(self, name: str) -> Tool | None:
        """Return the tool with this name, or None."""
        return self._items.get(name)

    def get(self, name: str) -> Tool:
        """Return the tool with this name.

        Raises:
            UnknownToolError: There is no such tool; the error suggests the nearest names.
        """
        tool = self._items.get(name)
        if tool is None:
            raise UnknownToolError(name, nearest(name, self._items, 3))
        return tool

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> ToolExecutionResult:
        """Call a tool: ``await box.call("add", a=1, b=2)``, or ``await box.call("add", {"a": 1, "b": 2})``.

        Args:
            name: The tool's name.
            arguments: The arguments by name, or their JSON text.
            context: Invocation context; None for an empty one. Pass a tool argument named ``context`` in ``arguments``.
            more: More arguments, as keywords; they cannot be combined with text.

        Returns:
            The result. Failures are results with ``is_error``.

        Raises:
            DefinitionError: The arguments are text, and there are more.
        """
        if isinstance(arguments, str):
            if more:
                raise DefinitionError(f"arguments of {name!r} are given as text and as keywords; give one of them")
            given: Mapping[str, Any] | str = arguments
        else:
            given = {**(arguments or {}), **more}
        return await execute(self, ToolExecutionRequest(name, given), context or InvocationContext())


class TransformedToolBox(TransformedBox[Tool], ToolBox):
    """A box that follows another one while it is referenced itself; made by `ToolBox.transformed`."""
