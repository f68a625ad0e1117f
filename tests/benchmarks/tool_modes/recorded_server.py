"""A server with the recorded tools of a real one: ``python recorded_server.py NAME``. Its tools cannot be called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bridge
from bridge import Tool, ToolBox, ToolError, ToolSpecification

if TYPE_CHECKING:
    from bridge import InvocationContext

RECORDED = Path(__file__).parents[2] / "doctor" / "recorded"


def refuse(arguments: Any, context: InvocationContext) -> str:
    raise ToolError("this server has definitions alone")


def tools_of(name: str) -> ToolBox:
    """Return the tools of a recorded server."""
    listed = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))["tools"]
    return ToolBox(
        Tool(
            ToolSpecification(
                name=each["name"],
                title=each.get("title"),
                description=each.get("description"),
                parameters=each["inputSchema"],
                output_schema=each.get("outputSchema"),
            ),
            refuse,
        )
        for each in listed
    )


if __name__ == "__main__":
    bridge.run(bridge.Server(tools_of(sys.argv[1]), name=sys.argv[1]))
