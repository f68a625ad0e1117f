"""FastMCP's client, run by a Python that has it: ``fastmcp_client.py SERVER MODE`` prints the results as JSON.

SERVER is a URL, or a JSON array with a command line for a server over stdio.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp.client.transports import SSETransport, StdioTransport  # type: ignore[import-not-found]  # likewise
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found]  # likewise

asked: list[str] = []
progress: list[Any] = []


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    asked.append(message)
    return response_type(dish="soup", portions=2)


async def sample(messages: list[Any], params: Any, context: Any) -> str:
    asked.append(f"{messages[0].content.text} {params.max_tokens} {params.system_prompt}")
    return "42"


async def roots(context: Any) -> list[str]:
    return ["file:///home/ada"]


async def told(done: float, total: float | None, message: str | None) -> None:
    progress.append([done, total, message])


def transport(server: str) -> Any:
    if server.startswith("["):
        command, *arguments = json.loads(server)
        return StdioTransport(command, arguments, keep_alive=False)
    return SSETransport(server) if server.endswith("/sse") else server


async def seen(server: str, mode: str) -> dict[str, Any]:
    """Use every feature once."""
    handlers = {"elicitation_handler": elicit, "sampling_handler": sample, "roots": roots, "progress_handler": told}
    async with Client(transport(server), mode=mode, timeout=60, **handlers) as client:
        names = [tool.name for tool in await client.list_tools()]
        added = await client.call_tool("add", {"a": 2, "b": 3})
        mirrored = await client.call_tool("mirror", {"point": {"x": 1.5, "y": -2}})
        by_hand = await client.call_tool("with_metadata")
        kinds = await client.call_tool("every_kind")
        failed = await client.call_tool("fail", raise_on_error=False)
        try:
            await client.call_tool("add", {"a": "x"})
        except ToolError as error:
            refused = str(error)
        steps = await client.call_tool("steps")
        ordered = await client.call_tool("order")
        thought = await client.call_tool("think", {"question": "why"})
        folders = await client.call_tool("folders")
        interviewed = await client.call_tool("interview")
    return {
        "names": names,
        "added": [added.data.result, added.structured_content, added.content[0].text],
        "mirrored": [mirrored.data.x, mirrored.data.y],
        "metadata": (by_hand.meta or {}).get("example.org/cost"),
        "kinds": [block.type for block in kinds.content],
        "failed": [failed.is_error, failed.content[0].text],
        "refused": refused,
        "steps": [steps.data, steps.content[0].text, progress],
        "ordered": ordered.structured_content,
        "thought": thought.content[0].text,
        "folders": folders.structured_content["result"],
        "interviewed": interviewed.structured_content,
        "asked": asked,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(seen(*sys.argv[1:]))))
