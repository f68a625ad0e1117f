"""Results of calls on standard output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.cli.terminal import write_data, write_json
from bridge.hosting.process import print_message

if TYPE_CHECKING:
    from bridge.tools.content import Content
    from bridge.tools.tool import ToolExecutionResult


def write_result(result: ToolExecutionResult, output: str, *, is_printed: bool = False) -> None:
    """Write a result; its error message only if it was not printed before."""
    if output == "json":
        from bridge.wire.tools import result_to_wire  # noqa: PLC0415 - not needed for text

        write_json(result_to_wire(replace(result, model_content=None)))
    elif result.is_error:
        if not is_printed:
            print_message(result.text)
    elif result.text or result.structured_content is None:
        write_data(result.text)
    else:
        write_json(result.structured_content)
    if output == "text":
        for block in result.content:
            _note(block)


def _note(block: Content) -> None:
    """Describe on standard error a block that standard output omits."""
    from bridge.tools.content import File, ResourceLink, Text  # noqa: PLC0415

    if isinstance(block, Text):
        return
    if isinstance(block, ResourceLink):
        print_message(f"[link to {block.uri}]")
    elif isinstance(block, File):
        unit = "characters" if isinstance(block.content, str) else "bytes"
        print_message(f"[file {block.uri}, {len(block.content)} {unit}; --output json has it]")
    else:
        print_message(f"[{block.mime_type}, {len(block.data)} bytes; --output json has it]")
