"""FastMCP's client of tasks, run by a Python that has it: ``… URL PORT PREFIX`` prints the results as JSON."""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp_tasks import call_tool_task  # type: ignore[import-not-found]  # likewise


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    return {"name": "Ada" if "first" in message else "Lovelace"}


async def seen(url: str, port: int, prefix: str) -> dict[str, Any]:
    """Use every feature once."""
    async with Client(url, elicitation_handler=elicit, timeout=60) as client:
        added = await client.call_tool(f"{prefix}add", {"a": 1, "b": 2})
        directly = await client.call_tool(f"{prefix}add_directly", {"a": 1, "b": 2})
        greeted = await client.call_tool(f"{prefix}greet")
        failed = await client.call_tool(f"{prefix}fail", raise_on_error=False)
        task = await call_tool_task(client, f"{prefix}add", {"a": 3, "b": 2})
        waited = await task.result()
        ended = await task.status()
        held = await call_tool_task(client, f"{prefix}hold", {"port": port})
        await held.cancel()
        cancelled = await held.wait(state="cancelled")
    return {
        "results": [each.structured_content["result"] for each in (added, directly, waited)],
        "greeted": greeted.content[0].text,
        "failed": [failed.is_error, failed.content[0].text],
        "states": [ended.status, cancelled.status],
    }


sys.stdout.write(json.dumps(asyncio.run(seen(sys.argv[1], int(sys.argv[2]), sys.argv[3]))))
