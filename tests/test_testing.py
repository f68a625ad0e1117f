"""Test doubles for programs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from bridge import Caller, DefinitionError, InvocationContext, ToolBox, ToolError, ToolExecutionRequest, execute, tool
from bridge.server.auth.access import EVERYTHING
from bridge.server.auth.credentials import RequestUser
from bridge.server.auth.identity import current_user
from bridge.server.auth.tokens import VerifiedToken
from bridge.testing import Call, connected, failing, recorded, recorded_all


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def refuse() -> None:
    """Refuse."""
    raise ToolError("no")


class Several:
    @tool
    def one(self) -> None: ...

    @tool
    def two(self) -> None: ...


REQUEST = ToolExecutionRequest("add", {"a": 1, "b": 2})


@pytest.mark.anyio
async def test_a_recorded_tool_does_what_it_did_and_keeps_its_calls() -> None:
    watched, calls = recorded(add)
    context = InvocationContext()
    result = await execute(ToolBox(watched), REQUEST, context)
    assert result.text == "3"
    assert list(calls) == [Call(request=REQUEST, context=context, result=result)]


@pytest.mark.anyio
async def test_what_a_recorded_tool_raises_is_kept_too() -> None:
    watched, calls = recorded(refuse)
    assert (await execute(ToolBox(watched), ToolExecutionRequest("refuse"), InvocationContext())).is_error
    (call,) = calls
    assert call.result is None
    assert str(call.error) == "no"


@pytest.mark.anyio
async def test_a_failing_tool_fails_as_often_as_it_was_told() -> None:
    box = ToolBox(failing(add, 2))
    outcomes = [await execute(box, REQUEST, InvocationContext()) for _ in range(4)]
    assert [(outcome.is_error, outcome.text) for outcome in outcomes] == [
        (True, "attempt 1 of 2 that fail"),
        (True, "attempt 2 of 2 that fail"),
        (False, "3"),
        (False, "3"),
    ]


@pytest.mark.anyio
async def test_a_failing_tool_raises_the_error_that_it_was_given() -> None:
    box = ToolBox(failing(add, 1, ToolError("the disk is full")))
    assert (await execute(box, REQUEST, InvocationContext())).text == "the disk is full"


@pytest.mark.parametrize("double", [recorded, lambda source: failing(source, 1)])
def test_a_double_is_of_one_tool(double: object) -> None:
    assert callable(double)
    with pytest.raises(DefinitionError, match="has 2"):
        double(Several())


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["auto", "legacy", "2026-07-28"])
async def test_tools_are_imported_through_a_connection_in_memory(protocol: str) -> None:
    box = ToolBox(add)
    async with connected(box, protocol=protocol) as provider:  # type: ignore[arg-type]  # one of the three
        assert [imported.name for imported in provider.tools] == ["add"]
        result = await execute(provider.tools, REQUEST, InvocationContext())
        assert result.text == "3"
        assert result.structured_content == {"result": 3}


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_tool_may_be_told_who_calls(protocol: Any) -> None:
    seen: list[Caller | None] = []

    @tool
    async def note(context: InvocationContext) -> str:
        """Record the caller."""
        seen.append(context.caller)
        return "noted"

    ada = Caller("ada", frozenset({"read"}), {"iss": "https://login.example.org"})
    for caller in (ada, None):
        async with connected(note, protocol=protocol, caller=caller) as provider:
            await execute(provider.tools, ToolExecutionRequest("note"), InvocationContext())
    assert seen == [ada, None]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_callers_who_share_a_connection_are_told_apart(protocol: Any) -> None:
    @tool
    async def who(context: InvocationContext) -> str:
        """Return the caller."""
        await anyio.lowlevel.checkpoint()
        return "nobody" if context.caller is None else context.caller.name

    answers: dict[str, str] = {}

    async def call(name: str) -> None:
        current_user.set(RequestUser(VerifiedToken(token="", client_id=name, scopes=[]), EVERYTHING))
        answers[name] = (await provider.call("who")).text

    async with connected(who, protocol=protocol, caller=Caller("ada")) as provider:
        async with anyio.create_task_group() as group:
            for name in ("bob", "eve"):
                group.start_soon(call, name)
        assert answers == {"bob": "bob", "eve": "eve"}
        assert (await provider.call("who")).text == "ada"


@pytest.mark.anyio
async def test_several_tools_are_recorded_in_one_list() -> None:
    class Calculator:
        @tool
        def add(self, a: int, b: int) -> int:
            return a + b

        @tool
        def multiply(self, a: int, b: int) -> int:
            return a * b

    tools, calls = recorded_all(Calculator())
    box = ToolBox(tools)
    for name in ("multiply", "add", "multiply"):
        await box.call(name, a=2, b=3)
    assert [(call.request.name, call.result and call.result.text) for call in calls] == [
        ("multiply", "6"),
        ("add", "5"),
        ("multiply", "6"),
    ]
