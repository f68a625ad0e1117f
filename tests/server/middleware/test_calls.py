"""Middleware while calls run: threads, cancellation, questions, tasks, lifespans."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import InvocationContext, Middleware, ToolBox, ToolError, lifespan, tool, wrapped
from bridge.client import ClientHandlers
from bridge.middleware import method_of
from bridge.server import Server
from bridge.testing import connected
from bridge.tools import ElicitationAnswer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

from tests.server.middleware.surrounded import (
    DEADLINE_SECONDS,
    ERAS,
    FEATURES,
    LOG,
    REQUESTS,
    Answering,
    Changing,
    Era,
    Recording,
    SyncRefusing,
    add,
    subtract,
)


class Blocking(Middleware):
    """Blocks its thread until the event loop has run something else."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []

    def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        self.threads.append(threading.current_thread())
        assert self.go.wait(DEADLINE_SECONDS)
        assert not context.cancelled
        result = call_next(request, context)
        again = call_next(request, context)
        return replace(again, content=(*result.content, *again.content))


class Releasing(Middleware):
    """Lets the other go on, from the event loop."""

    def __init__(self, other: Blocking) -> None:
        self.other = other

    async def read_resource(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        self.other.go.set()
        return await call_next(request, context)


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ERAS)
async def test_a_plain_method_runs_in_a_thread_while_the_event_loop_goes_on(protocol: Era) -> None:
    blocking, loop = Blocking(), threading.current_thread()
    texts = []
    async with connected(*FEATURES, protocol=protocol, middleware=[blocking, Releasing(blocking)]) as provider:
        with anyio.fail_after(DEADLINE_SECONDS):

            async def ask() -> None:
                texts.append((await provider.call("add", {"a": 2, "b": 3})).text)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                while not blocking.threads:
                    await anyio.lowlevel.checkpoint()
                await provider.resources.read("notes://today")
    assert texts == ["5\n5"]
    assert blocking.threads
    assert loop not in blocking.threads


@pytest.mark.anyio
async def test_errors_and_lists_pass_through_plain_methods() -> None:
    async with connected(*FEATURES, middleware=[SyncRefusing(), SyncRefusing()]) as provider:
        assert [each.name for each in provider.tools] == ["add"]
        provider.tools.replace([])
        result = await provider.connections["memory"].call_tool("fail", {"text": "now"}, context=InvocationContext())
        assert result["content"][0]["text"] == "not not now"


class Waiting(Middleware):
    """Reports its end to the test."""

    def __init__(self) -> None:
        self.outcome: list[str] = []

    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        try:
            return await call_next(request, context)
        except anyio.get_cancelled_exc_class():
            self.outcome.append("cancelled")
            raise


class SyncWaiting(Middleware):
    """The same in a thread."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        try:
            return call_next(request, context)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ended.set()


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ERAS)
async def test_a_cancelled_call_is_cancelled_through_middleware(protocol: Era) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    @tool
    async def hang() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    waiting, in_thread = Waiting(), SyncWaiting()
    async with connected(hang, protocol=protocol, middleware=[waiting, in_thread]) as provider:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(provider.call, "hang")
                await begun.wait()
                tasks.cancel_scope.cancel()
            await ended.wait()
            while not waiting.outcome:
                await anyio.lowlevel.checkpoint()
    assert waiting.outcome == ["cancelled"]
    assert in_thread.ended.wait(DEADLINE_SECONDS)
    assert type(in_thread.error).__name__ == "CancelledError"


class Confirming(Middleware):
    """Asks the client before each call."""

    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        answer = await context.elicit("Sure?", bool)
        if not answer.data:
            raise ToolError("declined")
        return await call_next(request, context)


class SyncConfirming(Middleware):
    """Does the same in a thread."""

    def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        if not context.blocking.elicit("Sure?", bool).data:
            raise ToolError("declined")
        return call_next(request, context)


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ERAS)
@pytest.mark.parametrize("confirming", [Confirming(), SyncConfirming()])
async def test_middleware_asks_the_client(protocol: Era, confirming: Middleware) -> None:
    async def sure(*_: object) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {"value": sureness})

    middleware = [Recording("one"), confirming, SyncRefusing()]
    handlers = ClientHandlers(elicitation=sure)
    async with connected(*FEATURES, protocol=protocol, handlers=handlers, middleware=middleware) as provider:
        sureness = True
        assert (await provider.call("add", {"a": 2, "b": 3})).text == "5"
        sureness = False
        assert (await provider.call("add", {"a": 2, "b": 3})).text == "declined"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_middleware_surrounds_the_work_of_a_task() -> None:
    go = anyio.Event()

    @tool(task=True)
    async def later() -> str:
        await go.wait()
        LOG.append("later")
        return "done"

    async with connected(later, middleware=[Recording("one")]) as provider:
        LOG.clear()
        task = await provider.start("later")
        with anyio.fail_after(DEADLINE_SECONDS):
            while "one call_tool later" not in LOG:
                await anyio.lowlevel.checkpoint()
            assert LOG == ["one on_request later", "one call_tool later"]
            go.set()
            assert (await task.result()).text == "done"
        assert LOG[2:] == ["later", "one end", "one end"]


@lifespan
async def app() -> AsyncIterator[str]:
    yield "pool"


class Using(Middleware):
    """Uses the value of the server's lifespan, for each kind."""

    async def on_request(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        LOG.append(f"{method_of(request)}: {context.lifespan}")
        return await call_next(request, context)


@pytest.mark.anyio
async def test_middleware_uses_the_lifespan_of_the_server() -> None:
    async with connected(*FEATURES, lifespan=app, middleware=[Using()]) as provider:
        await provider.call("add", {"a": 2, "b": 3})
        await provider.resources.read("notes://today")
        await provider.prompts.render("review", {"topic": "tea"})
        await provider.prompts.complete("review", "topic", "t")
        await provider.resources.list()
    assert {each.partition(": ")[2] for each in LOG if ": " in each} == {"pool"}
    assert {each.partition(": ")[0] for each in LOG if ": " in each} == {method for method, _ in REQUESTS}


@pytest.mark.anyio
async def test_tools_elsewhere_are_not_surrounded() -> None:
    box = ToolBox(add)
    server = Server(box, name="apart", middleware=[Answering()])
    assert (await box.call("add", a=2, b=3)).text == "5"
    assert (await server.tools.call("add", a=2, b=3)).text == "5"


@pytest.mark.anyio
async def test_middleware_surrounds_tools_one_by_one() -> None:
    box = ToolBox(wrapped([add, subtract], Recording("one"), Changing()))
    assert (await box.call("add", a=2, b=3)).text == "42\n42"
    assert LOG == ["one on_request add", "one call_tool add", "add", "one end", "one end"]
    (unchanged,) = wrapped([add], Using.__mro__[1]())
    assert type(unchanged.executor).__name__ == "FunctionExecutor"
