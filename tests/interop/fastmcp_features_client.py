"""FastMCP's client with resources and prompts: ``fastmcp_features_client.py SERVER`` prints the results as JSON.

SERVER is a URL, or a JSON array with a command line for a server over stdio.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]  # likewise


def dumped(items: Any) -> Any:
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]


async def seen(server: str) -> dict[str, Any]:
    transport: Any = server
    if server.startswith("["):
        command, *arguments = json.loads(server)
        transport = StdioTransport(command, arguments, keep_alive=False)
    async with Client(transport, timeout=60) as client:
        prompt = await client.get_prompt("review", {"code": "x = 1", "style": "strict"})
        completed = await client.complete({"type": "ref/prompt", "name": "review"}, {"name": "style", "value": "s"})
        return {
            "resources": [str(each.uri) for each in await client.list_resources()],
            "templates": [each.uri_template for each in await client.list_resource_templates()],
            "prompts": [each.name for each in await client.list_prompts()],
            "text": dumped(await client.read_resource("notes://today")),
            "blob": dumped(await client.read_resource("notes://seal")),
            "templated": dumped(await client.read_resource("notes://by/ada?language=fr")),
            "messages": dumped(prompt.messages),
            "completed": list(completed.values),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(seen(sys.argv[1]))))
