"""Middleware around the list of tools, and the search for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from mcp import Client
from mcp_types import TextContent

from bridge import Middleware, ToolBox, tool
from bridge.server import Server, ServerToolSearch
from tests.server.memory import memory

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import ListRequest

pytestmark = pytest.mark.anyio


@tool
def delete_invoice(number: int) -> int:
    """Delete an invoice."""
    return number


@tool
def list_invoices() -> list[int]:
    """List all invoices."""
    return [1, 2]


@pytest.mark.parametrize("mode", ["search", "code"])
async def test_what_middleware_takes_from_the_list_is_not_found(mode: Literal["search", "code"]) -> None:
    class Hiding(Middleware):
        async def list_tools(self, request: ListRequest, context: InvocationContext, call_next: Any) -> Any:
            return [each for each in await call_next(request, context) if not each.name.startswith("delete_")]

    search = ServerToolSearch(mode=mode)
    async with Client(
        memory(Server(ToolBox(delete_invoice, list_invoices), name="tests", tool_search=search, middleware=[Hiding()]))
    ) as client:
        result = await client.call_tool("search_tools", {"query": "invoice", "detail": "name"})
        assert [each.text for each in result.content if isinstance(each, TextContent)] == ['[{"name":"list_invoices"}]']
