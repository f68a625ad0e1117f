"""A server in code mode, and scripts that its clients run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_types import TextContent

from bridge import ToolBox, ToolError, tool
from bridge.server import CodeLimits, Server, ServerToolSearch

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

DEADLINE_SECONDS = 60


@tool
async def get_rate(currency: str) -> float:
    """Look up an exchange rate.

    Args:
        currency: Code of the currency.
    """
    if len(currency) != 3:
        raise ToolError(f"there is no currency {currency!r}")
    return float(len(currency))


def server_of(*tools: object, code: CodeLimits | None = None, **options: Any) -> Server:
    search = ServerToolSearch(mode="code", code=code or CodeLimits())
    return Server(ToolBox(*tools), name="tests", tool_search=search, **options)


def text_of(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


async def run(client: Client, code: str, **options: Any) -> str:
    result = await client.call_tool("run_code", {"code": code}, **options)
    assert not result.is_error, text_of(result)
    return text_of(result)


async def failure(client: Client, code: str) -> str:
    result = await client.call_tool("run_code", {"code": code})
    assert result.is_error
    return text_of(result)


def texts_of(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]
