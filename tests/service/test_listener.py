from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import tool
from bridge.errors import ChatModelError
from bridge.service.events import InvocationListener
from bridge.service.memory.chat_memory import ChatMemory
from tests.service.fakes import DEADLINE_SECONDS, ask, assistant, call, calls

if TYPE_CHECKING:
    from bridge.service.messages import UserMessage
    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    return a + b


class Diary(InvocationListener):
    """Records its events, and their invocations."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.invocations: set[str] = set()

    def note(self, context: InvocationContext, *entry: Any) -> None:
        self.invocations.add(context.invocation_id)
        self.entries.append(entry if len(entry) > 1 else entry[0])

    async def on_invocation_started(self, message: UserMessage, context: InvocationContext) -> None:
        self.note(context, "started", message.text)

    def on_model_request(self, request: Any, context: InvocationContext) -> None:
        self.note(context, "request", len(request.messages))

    def on_model_response(self, response: Any, request: Any, context: InvocationContext) -> None:
        self.note(context, "response", response.message.text)

    async def before_tool(self, request: Any, context: InvocationContext) -> None:
        self.note(context, "before", request.name)

    async def after_tool(self, execution: Any, context: InvocationContext) -> None:
        self.note(context, "after", execution.result.text)

    def on_invocation_completed(self, result: Any, context: InvocationContext) -> None:
        self.note(context, "completed", result.content)

    def on_invocation_failed(self, error: BaseException, context: InvocationContext) -> None:
        self.note(context, "failed", type(error).__name__)


async def test_a_listener_hears_everything_in_order(way: str) -> None:
    diary = Diary()
    await ask(assistant(calls(call("add", a=1, b=2)), "3", tools=[add], listeners=[diary]), way, "1 + 2?")
    assert diary.entries == [
        ("started", "1 + 2?"),
        ("request", 1),
        ("response", None),
        ("before", "add"),
        ("after", "3"),
        ("request", 3),
        ("response", "3"),
        ("completed", "3"),
    ]
    assert len(diary.invocations) == 1


async def test_a_listener_hears_of_a_failure(way: str) -> None:
    diary = Diary()
    with pytest.raises(ChatModelError):
        await ask(assistant(ChatModelError("no", provider="fake"), listeners=[diary]), way)
    assert diary.entries[-1] == ("failed", "ChatModelError")


async def test_a_listener_hears_of_being_cancelled_and_may_wait(way: str) -> None:
    heard: list[str] = []

    class Slow(InvocationListener):
        async def on_invocation_failed(self, error: BaseException, context: InvocationContext) -> None:
            await anyio.lowlevel.checkpoint()
            heard.append("done")

    with anyio.fail_after(DEADLINE_SECONDS), anyio.CancelScope() as scope:

        @tool
        async def leave() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        await ask(assistant(calls(call("leave")), tools=[leave], listeners=[Slow()]), way)
    assert heard == ["done"]


async def test_a_listener_that_raises_is_logged_and_loses_nothing(way: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("no")

    names = [name for name in vars(InvocationListener) if name.startswith("on_")]
    failing = type("Failing", (InvocationListener,), dict.fromkeys([*names, "after_tool"], fail))()
    memory = ChatMemory()
    service = assistant(calls(call("add", a=1, b=2)), "3", tools=[add], listeners=[failing], memory=memory)
    assert (await ask(service, way)).content == "3"
    assert len(await memory.messages()) == 4
    assert len([record for record in caplog.records if record.exc_info]) == 7
    with pytest.raises(ConnectionError, match="gone"):
        await ask(assistant(ConnectionError("gone"), listeners=[failing]), way)


async def test_a_listener_stops_the_invocation_before_a_tool(way: str) -> None:
    class Refusing(InvocationListener):
        def before_tool(self, *_: Any) -> None:
            raise KeyError("no")

    memory = ChatMemory()
    service = assistant(calls(call("add", a=1, b=2)), tools=[add], listeners=[Refusing()], memory=memory)
    with pytest.raises(KeyError, match="no"):
        await ask(service, way)
    assert await memory.messages() == ()
