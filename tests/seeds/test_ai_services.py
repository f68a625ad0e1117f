"""AI services: methods that a model implements, with tools of every origin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import pytest

from bridge import (
    AiMessage,
    ChatMemory,
    DefinitionError,
    ExecutionPolicy,
    InvocationContext,
    MemoryId,
    Result,
    ReturnBehavior,
    Tool,
    ToolExecutionRequest,
    ToolExecutionResult,
    ToolSpecification,
    UserMessage,
    ai_service,
    message_window,
    tool,
    tools_from,
    user_message,
)
from bridge.errors import ToolLimitError
from bridge.service.loop import InvocationLimits
from bridge.testing import ScriptedChatModel
from bridge.tools import JsonObjectSchema, ToolMemoryId, ToolProviderRequest
from tests.seeds.services import assistant, call, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge import ChatRequest

pytestmark = pytest.mark.anyio


class Calculator:
    @tool
    def add(self, a: int, b: int) -> float:
        return a + b

    @tool
    def square_root(self, x: float) -> float:
        return math.sqrt(x)


class MathGenius(Protocol):
    def ask(self, question: str) -> str: ...


def test_the_math_genius_asks_the_model_twice_and_runs_the_tool_in_between() -> None:
    model = ScriptedChatModel(
        [call("square_root", x=475695037565), "The square root of 475695037565 is 689706.486532."]
    )
    genius = ai_service(MathGenius, chat_model=model, tools=[Calculator()])
    answer = genius.ask("What is the square root of 475695037565?")
    assert answer == "The square root of 475695037565 is 689706.486532."
    assert told(model) == ["689706.4865324959"]
    offered = [[each.name for each in request.tool_specifications] for request in model.requests]
    assert offered == [["add", "square_root"]] * 2


async def test_a_result_tells_which_tools_were_executed() -> None:
    @tool
    def cancel_booking(number: str) -> str:
        return f"Booking {number} is cancelled."

    service, _ = assistant(call("cancel_booking", number="123-456"), "Done.", tools=[cancel_booking])
    result = await service.chat("Cancel my booking 123-456")
    (execution,) = result.tool_executions
    assert result.content == "Done."
    assert execution.request == call("cancel_booking", number="123-456")
    assert execution.result.text == "Booking 123-456 is cancelled."
    assert execution.duration_seconds > 0


class UserTools:
    @tool("Get user information")
    def get_user_info(self, user_id: Annotated[str, ToolMemoryId]) -> str:
        return f"User information for {user_id}"

    @tool("Update user preferences")
    def update_preferences(self, user_id: Annotated[str, ToolMemoryId], preferences: str) -> str:
        return f"Updated preferences for {user_id}: {preferences}"


class Conversation(Protocol):
    def chat(self, user_id: Annotated[str, MemoryId], message: str) -> str: ...


def test_the_memory_id_is_passed_to_tools_and_hidden_from_the_model() -> None:
    model = ScriptedChatModel([call("get_user_info"), "1", call("update_preferences", preferences="dark"), "2"])
    service = ai_service(
        Conversation,
        chat_model=model,
        memory_provider=lambda memory_id: ChatMemory(window=message_window(10), memory_id=memory_id),
        tools=[UserTools()],
    )
    service.chat("user123", "What are my preferences?")
    service.chat("user456", "I prefer it dark.")
    assert model.requests[1].messages[-1].text == "User information for user123"
    assert model.requests[3].messages[-1].text == "Updated preferences for user456: dark"
    published = [list(each.parameters["properties"]) for each in model.requests[0].tool_specifications]
    assert published == [[], ["preferences"]]


@pytest.mark.parametrize("memory_id", ["user123", None])
def test_the_memory_id_is_seen_by_providers_callbacks_and_handlers(memory_id: str | None) -> None:
    seen: list[str | None] = []

    def see(*values: Any) -> None:
        seen.append(next(each for each in values if isinstance(each, InvocationContext)).memory_id)

    def fail(user_id: Annotated[str | None, ToolMemoryId]) -> None:
        seen.append(user_id)
        raise ValueError("no")

    service = ai_service(
        Conversation,
        chat_model=ScriptedChatModel([call("fail"), "No."]),
        tools=[fail],
        tool_providers=[lambda request: see(request.context)],
        policy=ExecutionPolicy(on_execution_error=see, before=(see,), after=(see,)),
    )
    service.chat(memory_id, "Fail")  # type: ignore[arg-type]  # a conversation that is not kept has no id
    assert seen == [memory_id] * 5


async def test_tools_are_found_once_when_the_service_is_built() -> None:
    found: list[object] = []

    def finding() -> Iterator[object]:
        for each in (Calculator(), UserTools()):
            found.append(each)
            yield each

    service, model = assistant("1", "2", tools=finding())
    assert len(found) == 2
    for _ in range(2):
        await service.chat("Hello")
    first, second = (request.tool_specifications for request in model.requests)
    assert len(first) == 4
    assert first is second


BOOKINGS = {"B-12345": "Klaus Heisler, 3 nights"}
GET_BOOKING_DETAILS = ToolSpecification(
    name="get_booking_details",
    description="Returns booking details",
    parameters=JsonObjectSchema().string("bookingNumber", "Booking number in B-12345 format").build(),
)


class BookingExecutor:
    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        arguments: Any = request.arguments
        return ToolExecutionResult.of_text(BOOKINGS[arguments["bookingNumber"]])


BOOKING_TOOL = Tool(GET_BOOKING_DETAILS, BookingExecutor())
BOOKING_CALL = call("get_booking_details", bookingNumber="B-12345")


async def test_a_tool_is_specified_by_program() -> None:
    service, model = assistant(BOOKING_CALL, "Klaus.", tools=[BOOKING_TOOL])
    assert (await service.chat("Who is B-12345?")).content == "Klaus."
    assert model.requests[0].tool_specifications == (GET_BOOKING_DETAILS,)
    assert told(model) == ["Klaus Heisler, 3 nights"]


class BookingProvider:
    """Provides the tool for bookings if the user's message mentions a booking."""

    is_dynamic = False

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
        said = request.user_message.text
        return [BOOKING_TOOL] if "booking" in said else []


async def test_a_tool_is_provided_where_the_message_contains_booking() -> None:
    service, model = assistant(
        "Good morning.", BOOKING_CALL, "Klaus.", tools=[Calculator()], tool_providers=[BookingProvider()]
    )
    await service.chat("Good morning")
    result = await service.chat("Who is my booking B-12345 for?")
    assert result.tool_executions[0].result.text == "Klaus Heisler, 3 nights"
    offered = [[each.name for each in request.tool_specifications] for request in model.requests]
    assert offered == [["add", "square_root"], *[["add", "square_root", "get_booking_details"]] * 2]


@pytest.mark.parametrize(("is_dynamic", "times"), [(False, 1), (True, 3)])
async def test_a_provider_is_called_once_an_invocation_or_before_each_request(is_dynamic: bool, times: int) -> None:
    calls: list[ToolProviderRequest] = []

    class Provider:
        def __init__(self) -> None:
            self.is_dynamic = is_dynamic

        def provide_tools(self, request: ToolProviderRequest) -> object:
            calls.append(request)
            return Calculator()

    service, _ = assistant(*[call("add", a=1, b=2)] * 2, "3", tool_providers=[Provider()])
    await service.chat("1 + 2?")
    assert len(calls) == times


async def test_a_provider_that_fails_stops_the_invocation() -> None:
    def provide(request: ToolProviderRequest) -> None:
        raise LookupError("no catalogue")

    service, model = assistant(tool_providers=[provide])
    with pytest.raises(LookupError, match="no catalogue"):
        await service.chat("Hello")
    assert model.requests == []


async def test_tools_are_provided_by_what_the_message_is_about() -> None:
    @tool
    def get_weather(location: str) -> str:
        return f"Sunny in {location}"

    @tool
    def query_database(sql: str) -> str:
        return f"Rows of {sql}"

    class DynamicToolProvider:
        is_dynamic = False

        async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
            topics = {"weather": get_weather, "database": query_database}
            said = request.user_message.text
            return [each for topic, made in topics.items() if topic in said for each in tools_from(made)]

    service, model = assistant("a", "b", "c", tool_providers=[DynamicToolProvider()])
    for message in ("The weather?", "weather and database", "Hello"):
        await service.chat(message)
    assert [[each.name for each in request.tool_specifications] for request in model.requests] == [
        ["get_weather"],
        ["get_weather", "query_database"],
        [],
    ]


class RouterAgent(Protocol):
    @user_message("""
        Analyze the following user request and categorize it as 'legal', 'medical' or 'technical',
        then forward the request as it is to the corresponding expert provided as a tool.
        Finally return the answer that you received from the expert without any modification.
        The user request is: '{{it}}'.
    """)
    def ask_to_expert(self, request: str) -> str: ...


class MedicalExpert(Protocol):
    @tool("A medical expert")
    @user_message("You are a medical expert. The user request is {{it}}.")
    def medical_request(self, request: str) -> str: ...


class LegalExpert(Protocol):
    @tool("A legal expert")
    @user_message("You are a legal expert. The user request is {{it}}.")
    def legal_request(self, request: str) -> str: ...


class TechnicalExpert(Protocol):
    @tool("A technical expert")
    @user_message("You are a technical expert. The user request is {{it}}.")
    def technical_request(self, request: str) -> str: ...


def test_services_are_tools_of_a_router() -> None:
    request = "I broke my leg what should I do"
    medical, others = ScriptedChatModel(["See a doctor."]), ScriptedChatModel([])
    experts: list[object] = [
        ai_service(MedicalExpert, chat_model=medical),
        ai_service(LegalExpert, chat_model=others),
        ai_service(TechnicalExpert, chat_model=others),
    ]
    model = ScriptedChatModel([call("medical_request", request=request), "See a doctor."])
    router = ai_service(RouterAgent, chat_model=model, tools=experts)
    assert router.ask_to_expert(request) == "See a doctor."
    assert [(each.name, each.description) for each in model.requests[0].tool_specifications] == [
        ("medical_request", "A medical expert"),
        ("legal_request", "A legal expert"),
        ("technical_request", "A technical expert"),
    ]
    assert medical.requests[0].messages == (
        UserMessage.of(f"You are a medical expert. The user request is {request}."),
    )
    assert others.requests == []


async def test_tools_of_several_classes_are_used_together() -> None:
    class WeatherTools:
        @tool("Get current weather for a location")
        def get_weather(self, location: str) -> str:
            return "Sunny, 72°F"

        @tool("Get weather forecast for next N days")
        def get_forecast(self, location: str, days: int) -> str:
            return f"Next {days} days: mostly sunny"

    class DatabaseTools:
        @tool("Query database and return results")
        def query_database(self, sql: str) -> str:
            return "12 users"

    wanted = [call("get_weather", location="NYC"), call("query_database", sql="SELECT count(*) FROM users")]
    service, _ = assistant(wanted, "Sunny, and 12.", tools=[WeatherTools(), DatabaseTools()])
    result = await service.chat("What's the weather in NYC and how many users do we have?")
    assert [each.result.text for each in result.tool_executions] == ["Sunny, 72°F", "12 users"]


async def test_the_number_of_round_trips_is_limited() -> None:
    def never_satisfied(request: ChatRequest) -> ToolExecutionRequest:
        return call("add", a=len(request.messages), b=1)

    model = ScriptedChatModel(never_satisfied)
    genius = ai_service(
        MathGenius, chat_model=model, tools=[Calculator()], limits=InvocationLimits(max_tool_round_trips=5)
    )
    with pytest.raises(ToolLimitError, match="5 round trips"):
        genius.ask("Calculate 1+1, then add 1, then add 1...")
    assert len(told(model)) == 5


class ActionTools:
    def __init__(self) -> None:
        self.queued: list[str] = []

    @tool("Send email to user", return_behavior=ReturnBehavior.IMMEDIATE)
    def send_email(self, to: str, subject: str, body: str) -> str:
        self.queued.append(to)
        return "Email queued for sending"


async def test_a_tools_result_may_be_the_answer_at_once() -> None:
    tools = ActionTools()
    service, model = assistant(call("send_email", to="john@example.com", subject="Hi", body="…"), tools=[tools])
    result = await service.chat("Send an email to john@example.com")
    assert result.content == "Email queued for sending"
    assert result.final_response.message == AiMessage(tool_execution_requests=(result.tool_executions[0].request,))
    assert (tools.queued, len(model.requests)) == (["john@example.com"], 1)


def test_an_immediate_tool_needs_a_method_that_can_return_its_result() -> None:
    with pytest.raises(DefinitionError, match="'send_email'"):
        ai_service(MathGenius, chat_model=ScriptedChatModel([]), tools=[ActionTools()])


async def test_the_basic_usage_multiplies() -> None:
    class CalculatorTools:
        @tool("Add two numbers")
        def add(self, a: float, b: float) -> float:
            return a + b

        @tool("Multiply two numbers")
        def multiply(self, a: float, b: float) -> float:
            return a * b

    class Plain(Protocol):
        async def chat(self, message: str) -> Result[str]: ...

    model = ScriptedChatModel([call("multiply", a=25, b=4), "25 multiplied by 4 equals 100"])
    service = ai_service(Plain, chat_model=model, tools=[CalculatorTools()])
    assert (await service.chat("What is 25 multiplied by 4?")).content == "25 multiplied by 4 equals 100"
    assert told(model) == ["100.0"]
