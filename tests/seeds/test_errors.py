"""Errors: tools that raise, invalid arguments, unknown names; and the handlers that decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge import ExecutionPolicy, InvocationContext, Tool, ToolError, ToolExecutionRequest, tool, tools_from
from bridge.errors import InvocationError, UnknownToolError
from bridge.testing import failing
from tests.seeds.services import assistant, call, told

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


class DatabaseTools:
    @tool("Query database and return results")
    def query_database(self, sql: str, limit: int = 10) -> str:
        if not sql.startswith("SELECT"):
            raise ValueError("only SELECT is allowed")
        return f"{limit} rows"


@tool
def hello() -> str:
    return "Hello, world"


async def test_the_message_of_an_exception_is_what_the_model_reads() -> None:
    wrong, right = call("query_database", sql="DROP"), call("query_database", sql="SELECT 1")
    service, model = assistant(wrong, right, "Ten rows.", tools=[DatabaseTools()])
    result = await service.chat("How many?")
    assert told(model) == ["only SELECT is allowed", "10 rows"]
    assert [each.result.is_error for each in result.tool_executions] == [True, False]
    assert isinstance(result.tool_executions[0].error, ValueError)


async def test_what_is_wrong_with_arguments_is_what_the_model_reads() -> None:
    broken = ToolExecutionRequest("query_database", '{"sql": ')
    unfit = call("query_database", limit="many")
    service, model = assistant(broken, unfit, call("query_database", sql="SELECT 1"), "Ten.", tools=[DatabaseTools()])
    await service.chat("How many?")
    first, second, third = told(model)
    assert first is not None
    assert first.startswith("invalid arguments for 'query_database': ")
    assert second is not None
    assert "sql: is required" in second
    assert 'limit: should be a valid integer, got "many"' in second
    assert third == "10 rows"


async def test_an_exception_may_stop_the_invocation() -> None:
    service, model = assistant(
        call("query_database", sql="DROP"), tools=[DatabaseTools()], policy=ExecutionPolicy(propagate=True)
    )
    with pytest.raises(ValueError, match="only SELECT is allowed"):
        await service.chat("How many?")
    assert len(model.requests) == 1


async def test_handlers_say_what_the_model_reads_of_wrong_arguments_and_of_failures() -> None:
    seen: list[tuple[str, object]] = []

    def on_arguments(error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int) -> str:
        seen.append(("arguments", request.arguments))
        return "Invalid arguments format. Please provide valid JSON."

    def on_execution(error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int) -> str:
        seen.append(("execution", request.arguments))
        return f"Tool execution failed: {error}"

    service, model = assistant(
        ToolExecutionRequest("query_database", '{"sql": '),
        call("query_database", sql="SELECT 1", limit="many"),
        call("query_database", sql="DROP"),
        "I give up.",
        tools=[DatabaseTools()],
        policy=ExecutionPolicy(on_arguments_error=on_arguments, on_execution_error=on_execution),
    )
    await service.chat("How many?")
    assert told(model) == [
        "Invalid arguments format. Please provide valid JSON.",
        "Invalid arguments format. Please provide valid JSON.",
        "Tool execution failed: only SELECT is allowed",
    ]
    assert seen == [
        ("arguments", '{"sql": '),
        ("arguments", {"sql": "SELECT 1", "limit": "many"}),
        ("execution", {"sql": "DROP"}),
    ]


async def test_a_handler_may_try_again_with_a_corrected_request() -> None:
    def corrected(
        error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int
    ) -> ToolExecutionRequest:
        return call("query_database", sql="SELECT 1", limit=attempt)

    service, model = assistant(
        call("query_database", sql="DROP"),
        "One row.",
        tools=[DatabaseTools()],
        policy=ExecutionPolicy(on_execution_error=corrected),
    )
    await service.chat("How many?")
    assert told(model) == ["1 rows"]


async def test_a_handler_that_always_tries_again_is_limited() -> None:
    attempts: list[int] = []

    def again(
        error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int
    ) -> ToolExecutionRequest:
        attempts.append(attempt)
        return request

    service, model = assistant(
        call("query_database", sql="DROP"),
        "I give up.",
        tools=[DatabaseTools()],
        policy=ExecutionPolicy(on_execution_error=again, max_attempts=4),
    )
    await service.chat("How many?")
    assert attempts == [1, 2, 3, 4]
    assert told(model) == ["'query_database' failed 4 times; last: only SELECT is allowed"]


async def test_a_handler_may_stop_the_invocation() -> None:
    def stop(error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int) -> str:
        raise InvocationError("that was too much") from error

    service, model = assistant(
        call("query_database", sql="DROP"), tools=[DatabaseTools()], policy=ExecutionPolicy(on_execution_error=stop)
    )
    with pytest.raises(InvocationError, match="too much"):
        await service.chat("How many?")
    assert len(model.requests) == 1


class RetryingErrorHandler:
    """Tells the model to try again, up to a maximum for each tool."""

    max_retries = 3

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}

    async def __call__(
        self, error: Exception, request: ToolExecutionRequest, context: InvocationContext, attempt: int
    ) -> str:
        attempts = self.attempts[request.name] = self.attempts.get(request.name, 0) + 1
        if attempts > self.max_retries:
            raise InvocationError(f"{request.name!r} failed {attempts} times") from error
        return f"Tool execution failed (attempt {attempts}/{self.max_retries}): {error}. Retrying..."


async def test_a_handler_counts_and_stops_in_the_end() -> None:
    service, model = assistant(
        *[call("hello")] * 4,
        tools=[failing(hello, 9, ConnectionError("Temporary failure"))],
        policy=ExecutionPolicy(on_execution_error=RetryingErrorHandler()),
    )
    with pytest.raises(InvocationError, match="failed 4 times"):
        await service.chat("Say hello")
    assert told(model) == [
        f"Tool execution failed (attempt {attempt}/3): Temporary failure. Retrying..." for attempt in (1, 2, 3)
    ]


async def test_a_tool_that_does_not_exist_is_answered_with_an_error() -> None:
    service, model = assistant(call("helo"), call("hello"), "Hello.", tools=[hello])
    result = await service.chat("Say hello")
    assert result.content == "Hello."
    first, second = told(model)
    assert first is not None
    assert "'helo'" in first
    assert "'hello'" in first
    assert second == "Hello, world"


def _fail(error: UnknownToolError, request: ToolExecutionRequest, context: InvocationContext) -> str:
    raise error


def _tell(error: UnknownToolError, request: ToolExecutionRequest, context: InvocationContext) -> str:
    return f"Error: there is no tool called {request.name}"


async def test_a_strategy_says_what_becomes_of_a_hallucinated_tool() -> None:
    service, model = assistant(call("goodbye"), "Sorry.", tools=[hello], policy=ExecutionPolicy(on_unknown_tool=_tell))
    await service.chat("Say goodbye")
    assert told(model) == ["Error: there is no tool called goodbye"]


async def test_a_strategy_may_fail_at_once() -> None:
    service, _ = assistant(call("goodbye"), tools=[hello], policy=ExecutionPolicy(on_unknown_tool=_fail))
    with pytest.raises(UnknownToolError, match="'goodbye'"):
        await service.chat("Say goodbye")


def weather_from(*apis: Callable[[str], str]) -> Tool:
    """A tool that calls one service after another."""

    @tool("Get current weather")
    def get_weather(location: str) -> str:
        for api in apis:
            try:
                return api(location)
            except ConnectionError:
                continue
        return "Weather data unavailable"

    return tools_from(get_weather)[0]


def _down(location: str) -> str:
    raise ConnectionError(location)


@pytest.mark.parametrize(
    ("apis", "text"),
    [
        ([lambda location: f"{location}: sunny", _down], "NYC: sunny"),
        ([_down, lambda location: f"{location}: cloudy"], "NYC: cloudy"),
        ([_down, _down], "Weather data unavailable"),
    ],
)
async def test_a_tool_falls_back_to_another_service(apis: list[Callable[[str], str]], text: str) -> None:
    service, model = assistant(call("get_weather", location="NYC"), "ok", tools=[weather_from(*apis)])
    await service.chat("The weather in NYC?")
    assert told(model) == [text]


async def test_a_tool_degrades_to_what_it_remembers() -> None:
    class DegradedModeTools:
        def __init__(self) -> None:
            self.database: dict[str, str] | None = {"7": "Name: Ada, Email: ada@example.org"}
            self.cache: dict[str, str] = {}

        @tool("Get user profile")
        def get_user_profile(self, user_id: str) -> str:
            if self.database is not None:
                self.cache[user_id] = self.database[user_id]
                return self.database[user_id]
            if user_id in self.cache:
                return f"{self.cache[user_id]} (from cache)"
            raise ToolError("User profile temporarily unavailable")

    tools = DegradedModeTools()
    wanted = call("get_user_profile", user_id="7")
    service, model = assistant(wanted, "1", wanted, call("get_user_profile", user_id="8"), "2", tools=[tools])
    await service.chat("Who is 7?")
    tools.database = None
    await service.chat("Who is 7, and who is 8?")
    assert [text for text in told(model) if text and "who" not in text] == [
        "Name: Ada, Email: ada@example.org",
        "Name: Ada, Email: ada@example.org (from cache)",
        "User profile temporarily unavailable",
    ]
