"""Best practices: descriptions, short results, limits of time and rate, caches, circuit breakers, permissions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import anyio
import pytest

from bridge import (
    InvocationContext,
    MemoryId,
    P,
    ToolAnnotations,
    ToolBox,
    ToolError,
    ToolExecutionRequest,
    ai_service,
    execute,
    tool,
    tools_from,
)
from bridge.middleware import cached, circuit_broken, rate_limited
from bridge.testing import ScriptedChatModel, recorded
from bridge.tools import InvocationParameters, ToolMemoryId
from tests.seeds.services import DEADLINE_SECONDS, assistant, call, told

if TYPE_CHECKING:
    from bridge.models.scripted import Reply

pytestmark = pytest.mark.anyio


async def texts(source: object, *requests: ToolExecutionRequest) -> list[str]:
    box = ToolBox(source)
    return [(await execute(box, request, InvocationContext())).text for request in requests]


@dataclass
class User:
    name: str
    email: str
    status: str


def test_descriptions_of_tool_and_parameters_reach_the_model() -> None:
    @tool("Searches products by criteria")
    def search_products(
        keyword: Annotated[str, P("Search keyword for product name or description")],
        min_price: Annotated[float, P("Minimum price in USD, inclusive")],
        max_price: Annotated[float, P("Maximum price in USD, inclusive")],
        limit: Annotated[int, P("Maximum number of results to return, 1-100")],
    ) -> list[str]:
        return []

    (made,) = tools_from(search_products)
    assert made.specification.description == "Searches products by criteria"
    assert [each["description"] for each in made.specification.parameters["properties"].values()] == [
        "Search keyword for product name or description",
        "Minimum price in USD, inclusive",
        "Maximum price in USD, inclusive",
        "Maximum number of results to return, 1-100",
    ]


async def test_a_summary_is_shorter_than_everything() -> None:
    @tool
    def summary() -> str:
        user = User("Ada", "ada@example.org", "active")
        return f"User: {user.name}, Email: {user.email}, Status: {user.status}"

    @tool(max_output_chars=30)
    def everything() -> str:
        return "x" * 5_000

    assert await texts(summary, call("summary")) == ["User: Ada, Email: ada@example.org, Status: active"]
    service, model = assistant(call("everything"), "Long.", tools=[everything])
    result = await service.chat("Get user details")
    (read,) = told(model)
    assert read is not None
    assert len(read) < 100
    assert len(result.tool_executions[0].result.text) == 5_000


async def test_a_tool_says_what_it_cannot_find() -> None:
    @tool("Get product price")
    def get_price(product_id: str) -> str:
        prices = {"tea": 3.5}
        if product_id not in prices:
            return f"Product not found: {product_id}"
        return f"${prices[product_id]:.2f}"

    requests = [call("get_price", product_id="tea"), call("get_price", product_id="sand")]
    assert await texts(get_price, *requests) == ["$3.50", "Product not found: sand"]


async def test_a_tool_has_a_limit_of_time() -> None:
    @tool("Query external API", timeout_seconds=0.01)
    async def query_api(endpoint: str) -> str:
        await anyio.sleep_forever()
        return "never"

    with anyio.fail_after(DEADLINE_SECONDS):
        (text,) = await texts(query_api, call("query_api", endpoint="/slow"))
    assert re.search(r"'query_api'.*0\.01", text)


async def test_a_cache_saves_calls() -> None:
    @tool("Get weather data (cached 5 minutes)")
    def get_weather(location: str) -> str:
        return f"Sunny in {location}"

    expensive, calls = recorded(get_weather)
    wanted = [call("get_weather", location=location) for location in ("NYC", "NYC", "Oslo")]
    answers = await texts(cached(expensive, ttl_seconds=300, max_entries=1000), *wanted)
    assert answers == ["Sunny in NYC", "Sunny in NYC", "Sunny in Oslo"]
    assert [each.request.arguments for each in calls] == [{"location": "NYC"}, {"location": "Oslo"}]


async def test_input_is_validated() -> None:
    @tool("Execute SQL query")
    def query(
        sql: Annotated[str, P("A SELECT of users or products")],
        table: Annotated[str, P("users or products")],
    ) -> str:
        if not re.fullmatch("SELECT .*", sql):
            raise ToolError("Only SELECT queries allowed")
        if table not in {"users", "products"}:
            raise ToolError("Access denied to table")
        return "rows"

    wanted = [
        call("query", sql="DROP TABLE users", table="users"),
        call("query", sql="SELECT *", table="secrets"),
        call("query", sql="SELECT *", table="users"),
    ]
    assert await texts(query, *wanted) == ["Only SELECT queries allowed", "Access denied to table", "rows"]


async def test_calls_are_limited_in_time() -> None:
    @tool("Send email")
    def send_email(to: str, subject: str) -> str:
        return "Email sent"

    limited = rate_limited(send_email, 2, per_seconds=3600)
    first, second, third = await texts(limited, *[call("send_email", to="john@example.com", subject="Hi")] * 3)
    assert (first, second) == ("Email sent", "Email sent")
    assert third.startswith("'send_email' was called too often")


class Admin(Protocol):
    async def chat(self, session: Annotated[str, MemoryId], message: str, known: InvocationParameters) -> str: ...


async def test_access_is_controlled_by_what_the_program_knows_and_not_by_the_model() -> None:
    deleted: list[str] = []

    @tool("Delete user account", annotations=ToolAnnotations(destructive=True))
    def delete_user(session: Annotated[str, ToolMemoryId], user_id: str, known: InvocationParameters) -> str:
        if not known.get("is_admin"):
            return "Permission denied: admin access required"
        if user_id == session:
            return "Cannot delete your own account"
        deleted.append(user_id)
        return f"User deleted: {user_id}"

    bob, ada = (call("delete_user", user_id=user_id) for user_id in ("bob", "ada"))
    script: list[Reply] = [bob, "-", bob, "-", ada, "-"]
    model = ScriptedChatModel(script)
    service = ai_service(Admin, chat_model=model, tools=[delete_user])
    await service.chat("eve", "Delete bob", InvocationParameters())
    await service.chat("ada", "Delete bob", InvocationParameters(is_admin=True))
    await service.chat("ada", "Delete me", InvocationParameters(is_admin=True))
    assert [request.messages[-1].text for request in model.requests[1::2]] == [
        "Permission denied: admin access required",
        "User deleted: bob",
        "Cannot delete your own account",
    ]
    assert deleted == ["bob"]
    assert list(model.requests[0].tool_specifications[0].parameters["properties"]) == ["user_id"]


async def test_a_circuit_breaker_leaves_a_failing_service_alone() -> None:
    @tool("Call external API")
    def call_api(endpoint: str) -> str:
        raise ConnectionError("API call failed")

    behind, calls = recorded(call_api)
    breaker = circuit_broken(behind, failures=5, recovery_seconds=60)
    answers = await texts(breaker, *[call("call_api", endpoint="/")] * 7)
    assert answers[:5] == ["API call failed"] * 5
    assert all(answer.startswith("'call_api' does not work at present") for answer in answers[5:])
    assert len(calls) == 5
