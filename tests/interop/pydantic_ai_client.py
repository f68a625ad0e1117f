"""pydantic-ai's client with resources and prompts: ``pydantic_ai_client.py SERVER`` prints the results as JSON.

SERVER is a URL, or a JSON array with a command line for a server over stdio.
"""

import asyncio
import dataclasses
import json
import sys
from base64 import b64encode
from typing import Any

from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]  # it is installed elsewhere
from pydantic_ai.mcp import MCPToolset


def plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


async def seen(server: str) -> dict[str, Any]:
    transport: Any = server
    if server.startswith("["):
        command, *arguments = json.loads(server)
        transport = StdioTransport(command, arguments, keep_alive=False)
    toolset: Any = MCPToolset(transport)
    async with toolset:
        return {
            "resources": plain(await toolset.list_resources()),
            "templates": plain(await toolset.list_resource_templates()),
            "prompts": plain(await toolset.list_prompts()),
            "text": plain(await toolset.read_resource("notes://today")),
            "blob": plain(await toolset.read_resource("notes://seal")),
            "templated": plain(await toolset.read_resource("notes://by/ada?language=fr")),
            "messages": plain(await toolset.get_prompt("review", {"code": "x = 1", "style": "strict"})),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(seen(sys.argv[1]))))
