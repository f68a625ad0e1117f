"""The tool that reads a part of a kept result, for models whose host reads no resources."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic_core import from_json, to_json

from bridge.errors import ToolError
from bridge.tools.context import InvocationContext  # noqa: TC001 - an annotation that is read
from bridge.tools.function import tool, tools_from
from bridge.tools.schema.annotations import P
from bridge.tools.spill.paths import values_at
from bridge.tools.spill.preview import READ_TOOL
from bridge.tools.spill.spill import LARGE_CHARS
from bridge.tools.spill.store import ResultStoreError
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bridge.tools.content import File
    from bridge.tools.spill.spill import Spill
    from bridge.tools.tool import Tool

_AROUND_CHARS = 100
_MAX_MATCHES = 50


def read_tool(
    spill: Spill, read_other: Callable[[str, InvocationContext], Awaitable[File | None]] | None = None
) -> Tool:
    """Make the tool.

    Args:
        spill: Keeps the results.
        read_other: Reads a URI that is not one of its results, such as of another server; None for none.
    """
    page = spill.page_chars

    @tool(
        name=READ_TOOL,
        title="Read a large result",
        annotations={"readOnlyHint": True, "openWorldHint": False},
        always_visible=True,
    )
    async def read_result(
        context: InvocationContext,
        uri: Annotated[str, P("URI of the result, as the shortened result names it")],
        offset: Annotated[int, P("First character to read, from 0")] = 0,
        length: Annotated[int, P("Number of characters to read; 0 for as many as one answer may have")] = 0,
        first_line: Annotated[int, P("First line to read, from 1, in place of offset and length")] = 0,
        lines: Annotated[int, P("Number of lines to read from first_line")] = 100,
        search: Annotated[str, P("Text to search for, whatever its case: lists the places")] = "",
        path: Annotated[str, P("JSON path of what to read, such as $.items[0:10] or $.items[*].name")] = "",
    ) -> Any:
        """Read a part of a large result that was shortened: characters, lines, places of a text, or a JSON path.

        With a path, the other parameters apply to what it selects. Ask for no more than you need.
        """
        try:
            file = await spill.find(uri, context)
        except ResultStoreError as error:
            raise ToolError("the result cannot be read now; try again later") from error
        if file is None and read_other is not None:
            file = await read_other(uri, context)
        if file is None:
            raise ToolError(
                f"there is no kept result {uri!r}: the URI is wrong, or it has expired; call its tool again"
            )
        if not isinstance(file.content, str):
            return file.inline()
        request = _Request(offset, length, first_line, lines, search, path)
        if len(file.content) < LARGE_CHARS:
            return request.read(file.content, page)
        return await run_in_thread(partial(request.read, file.content, page), caller=context.account)

    (made,) = tools_from(read_result)
    return made


class _Request(NamedTuple):
    """Part of a text that is wanted."""

    offset: int
    length: int
    first_line: int
    lines: int
    search: str
    path: str

    def read(self, text: str, page: int) -> str:
        """Return the part, of at most so many characters.

        Raises:
            ToolError: The text has no such part.
        """
        if self.path:
            text = _at(text, self.path)
        if self.search:
            return _places(text, self.search, page)
        if self.first_line:
            offset, length = _lines_at(text, self.first_line, self.lines)
        else:
            offset, length = self.offset, self.length or page
        return _part(text, offset, min(length, page))


def _at(text: str, path: str) -> str:
    """Return what a path selects, as indented JSON, or as it is if that is text."""
    try:
        value = from_json(text)
    except ValueError:
        raise ToolError("this result is not JSON: read it without a path") from None
    try:
        found = values_at(value, path)
    except ValueError as error:
        raise ToolError(f"the path {path!r} cannot be read: {error}") from None
    if not found:
        raise ToolError(f"the path {path!r} selects nothing")
    selected = found[0] if len(found) == 1 else found
    return selected if isinstance(selected, str) else to_json(selected, indent=1, inf_nan_mode="null").decode()


def _lines_at(text: str, first: int, count: int) -> tuple[int, int]:
    """Return the offset and the length of lines."""
    starts = _starts(text)
    first, end = max(first, 1) - 1, max(first, 1) - 1 + max(count, 1)
    if first >= len(starts):
        raise ToolError(f"there is no line {first + 1}: it has {len(starts):,} lines")
    return starts[first], (starts[end] if end < len(starts) else len(text)) - starts[first]


def _part(text: str, offset: int, length: int) -> str:
    start = min(max(offset, 0), len(text))
    end = min(start + max(length, 1), len(text))
    if start == 0 and end == len(text):
        return text
    more = f"; continue with offset={end}" if end < len(text) else ""
    return f"[characters {start:,} to {end:,} of {len(text):,}{more}]\n{text[start:end]}"


def _places(text: str, search: str, page: int) -> str:
    """List the places of a text, each with its line, its offset and what stands around it."""
    starts, room = _starts(text), page
    found: list[str] = []
    places = list(_found(text, search))
    for offset in places[:_MAX_MATCHES]:
        line = bisect_right(starts, offset)
        begin = max(starts[line - 1], offset - _AROUND_CHARS)
        end = offset + len(search) + _AROUND_CHARS
        around = text[begin:end].split("\n", 1)[0].rstrip("\r")
        entry = f"line {line}, offset {offset}: {around}"
        room -= len(entry)
        if found and room < 0:
            break
        found.append(entry[:page])
    counted = f"{len(places):,}{' or more' if len(places) > _MAX_MATCHES else ''}"
    shown = "" if len(found) == len(places) else f", the first {len(found)}"
    return "\n".join([f"[{counted} of {search[:_AROUND_CHARS]!r}{shown}]", *found])


def _found(text: str, search: str) -> Iterator[int]:
    """Return the offsets of a text, at most one more than are listed."""
    folded, wanted = text.lower(), search.lower()
    if len(folded) != len(text):  # letters whose lower case has another length would move the offsets
        folded, wanted = text, search
    position = folded.find(wanted)
    for _ in range(_MAX_MATCHES + 1):
        if position < 0:
            return
        yield position
        position = folded.find(wanted, position + len(wanted))


def _starts(text: str) -> list[int]:
    """Return the offsets at which lines begin."""
    starts, position = [0], text.find("\n")
    while position >= 0 and position + 1 < len(text):
        starts.append(position + 1)
        position = text.find("\n", position + 1)
    return starts
