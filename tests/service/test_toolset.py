from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from bridge import ToolBox, tool, tools_from
from bridge.errors import NameClashError
from bridge.service.ai_service import ai_service
from bridge.service.toolset import Toolset
from tests.service.fakes import Assistant, FakeModel, ask, call, calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.tools.tool import Tool, ToolProviderRequest

pytestmark = pytest.mark.anyio


@tool
async def get_booking_details(booking_number: str) -> str:
    return f"details of {booking_number}"


@tool
async def unlock() -> str:
    return "unlocked"


@tool
async def secret() -> str:
    return "the secret"


class WhenAskedFor:
    """Provides a tool only if the user mentions bookings."""

    def __init__(self) -> None:
        self.requests: list[ToolProviderRequest] = []

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
        self.requests.append(request)
        return tools_from(get_booking_details) if "booking" in request.user_message.text else []


def names_in(model: FakeModel) -> list[list[str]]:
    return [[each.name for each in request.tool_specifications] for request in model.requests]


def test_a_box_keeps_no_service_that_has_used_it() -> None:
    box = ToolBox(unlock)
    toolset = weakref.ref(Toolset(box))
    gc.collect()
    assert toolset() is None


async def test_a_provider_gives_tools_by_what_the_user_says(way: str) -> None:
    provider = WhenAskedFor()
    model = FakeModel(calls(call("get_booking_details", booking_number="B-1")), "done", "hello")
    service = ai_service(Assistant, chat_model=model, tools=[unlock], tool_providers=[provider])
    result = await ask(service, way, "What of my booking B-1?")
    assert result.tool_executions[0].result.text == "details of B-1"
    await ask(service, way, "Hello")
    both = ["unlock", "get_booking_details"]
    assert names_in(model) == [both, both, ["unlock"]]
    assert len(provider.requests) == 2  # once for each invocation


async def test_a_dynamic_provider_is_asked_before_every_request_and_adds_and_removes(way: str) -> None:
    class Steps:
        is_dynamic = True

        def __init__(self) -> None:
            self.given = [[unlock], [secret], []]

        async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
            return [each for source in self.given.pop(0) for each in tools_from(source)]

    model = FakeModel(calls(call("unlock")), calls(call("secret")), "done")
    result = await ask(ai_service(Assistant, chat_model=model, tool_providers=[Steps()]), way)
    assert names_in(model) == [["unlock"], ["secret"], []]
    assert [each.result.text for each in result.tool_executions] == ["unlocked", "the secret"]


async def test_a_tool_that_was_taken_away_is_unknown(way: str) -> None:
    class Once:
        is_dynamic = True
        asked = 0

        async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:
            self.asked += 1
            return tools_from(unlock) if self.asked == 1 else []

    model = FakeModel(calls(call("unlock")), calls(call("unlock")), "done")
    result = await ask(ai_service(Assistant, chat_model=model, tool_providers=[Once()]), way)
    assert [each.result.is_error for each in result.tool_executions] == [False, True]


async def test_a_provider_that_gives_what_is_there_already_is_refused() -> None:
    class Again:
        is_dynamic = False

        async def provide_tools(self, request: Any) -> Iterable[Tool]:
            return tools_from(unlock)

    service = ai_service(Assistant, chat_model=FakeModel(), tools=[unlock], tool_providers=[Again()])
    with pytest.raises(NameClashError, match="'unlock'"):
        await service.chat("Hello")


async def test_a_provider_that_gives_nothing_may_say_none() -> None:
    class Nothing:
        is_dynamic = False

        async def provide_tools(self, request: Any) -> Any:
            return None

    service = ai_service(Assistant, chat_model=FakeModel("hi"), tool_providers=[Nothing()])
    assert (await service.chat("Hello")).content == "hi"
