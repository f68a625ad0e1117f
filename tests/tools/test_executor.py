"""Ways in which a function is called."""

from __future__ import annotations

import functools
import threading
from contextvars import ContextVar
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any
from unittest.mock import Mock

import anyio
import anyio.from_thread
import pytest
from pydantic import AfterValidator, BaseModel

from bridge import Tool, ToolSpecification, guarded
from bridge.errors import ArgumentsError, DefinitionError, ToolError
from bridge.tools.arguments.reader import LARGE_BYTES
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from bridge.tools.executors import (
    ContextThreadExecutor,
    EventLoopExecutor,
    FunctionExecutor,
    ThreadExecutor,
    executor_class,
)
from bridge.tools.function import tool, tools_from
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.schema.parameters import ToolMemoryId
from bridge.tools.threads import thread_limiter
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.caller import InvocationParameters
    from bridge.tools.questions import Answer, Question

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PATIENCE_SECONDS = 60


async def execute(function: object, context: InvocationContext | None = None, **arguments: Any) -> ToolExecutionResult:
    (found,) = tools_from(function)
    return await found.executor.execute(ToolExecutionRequest(found.name, arguments), context or InvocationContext())


class Asker(Channel):
    """A channel whose answers arrive only when the call is run again."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        raise InputRequired(questions)


async def coroutine_function() -> None: ...


def function() -> None: ...


class AsyncCallable:
    async def __call__(self) -> None: ...


class Callable_:  # noqa: N801 - beside the type
    def __call__(self) -> None: ...


@functools.wraps(coroutine_function)
def wrapper() -> Any:
    return coroutine_function()


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (coroutine_function, FunctionExecutor),
        (functools.partial(coroutine_function), FunctionExecutor),
        (AsyncCallable(), FunctionExecutor),
        (functools.partial(AsyncCallable()), FunctionExecutor),
        (AsyncCallable().__call__, FunctionExecutor),
        (wrapper, EventLoopExecutor),
        (function, ThreadExecutor),
        (Callable_(), ThreadExecutor),
        (functools.partial(function), ThreadExecutor),
        (functools.lru_cache(function), ThreadExecutor),
    ],
)
async def test_how_a_function_is_called_depends_on_what_it_is(
    what: Callable[..., Any], expected: type[FunctionExecutor]
) -> None:
    assert executor_class(what, {}, in_thread=True) is expected


async def test_a_function_may_be_called_in_place() -> None:
    assert executor_class(function, {}, in_thread=False) is EventLoopExecutor
    assert executor_class(coroutine_function, {}, in_thread=False) is FunctionExecutor


async def test_a_function_that_gets_the_context_can_see_that_its_caller_left() -> None:
    assert executor_class(function, {"context": "itself"}, in_thread=True) is ContextThreadExecutor
    assert executor_class(function, {"who": "memory_id"}, in_thread=True) is ThreadExecutor


async def test_only_a_plain_function_runs_in_another_thread() -> None:
    async def in_task() -> int:
        return threading.get_ident()

    def in_thread() -> int:
        return threading.get_ident()

    in_place = tool(run_in_thread=False)(lambda: threading.current_thread().ident)
    here = str(threading.get_ident())
    assert (await execute(in_task)).text == here
    assert (await execute(in_place)).text == here
    assert (await execute(in_thread)).text != here


async def test_context_variables_reach_the_thread() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("carried")

    def read() -> str:
        return variable.get()

    assert (await execute(read)).text == "carried"


@pytest.mark.parametrize("in_thread", [True, False])
async def test_the_context_is_injected_whatever_the_parameters_are_called(in_thread: bool) -> None:
    @tool(run_in_thread=in_thread)
    def show(
        a: int, who: Annotated[str, ToolMemoryId], extra: InvocationParameters, call: InvocationContext | None = None
    ) -> list[Any]:
        assert call is not None
        return [a, who, extra["k"], call.invocation_id]

    context = InvocationContext(memory_id="ann", parameters={"k": 1}, invocation_id="i")
    assert (await execute(show, context, a=2)).text == '[2,"ann",1,"i"]'


async def test_what_is_injected_cannot_be_given_by_the_caller() -> None:
    @tool(extra_arguments="ignore")
    def show(who: Annotated[str | None, ToolMemoryId]) -> str:
        return repr(who)

    @tool
    def refuse(who: Annotated[str | None, ToolMemoryId]) -> str:
        return repr(who)

    assert (await execute(show, who="mallory")).text == "None"
    with pytest.raises(ArgumentsError, match="who: is not a parameter"):
        await execute(refuse, who="mallory")


@pytest.mark.parametrize("in_thread", [True, False])
async def test_what_a_plain_function_returns_is_awaited_if_it_can_be(in_thread: bool) -> None:
    async def coroutine() -> str:
        return "awaited"

    @tool(run_in_thread=in_thread)
    def plain() -> Any:
        return coroutine()

    assert (await execute(plain)).text == "awaited"


@pytest.mark.parametrize("in_thread", [True, False])
async def test_what_a_function_raises_is_raised(in_thread: bool) -> None:
    @tool(run_in_thread=in_thread)
    def fail() -> None:
        raise ToolError("on purpose")

    with pytest.raises(ToolError, match="on purpose"):
        await execute(fail)


async def test_bad_arguments_never_reach_the_function() -> None:
    called = []

    def note(a: int) -> None:
        called.append(a)

    with pytest.raises(ArgumentsError, match="a: "):
        await execute(note, a="x")
    assert called == []


async def test_a_question_leaves_a_worker_thread_unharmed() -> None:
    def ask(context: InvocationContext) -> str:
        try:
            context.blocking.ask({"q": Elicitation("Sure?", {"type": "object"})})
        except Exception:  # noqa: BLE001 - what a careless author writes
            return "eaten"
        return "answered"

    context = InvocationContext(channel=Asker())
    with pytest.raises(InputRequired) as caught:
        await execute(ask, context)
    assert list(caught.value.questions) == ["q"]
    assert (await execute(lambda: "goes on", context)).text == "goes on"


async def test_a_coroutine_that_is_no_longer_awaited_is_cancelled() -> None:
    ended = anyio.Event()

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, wait)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert ended.is_set()


async def test_a_function_that_is_no_longer_awaited_sees_it_and_keeps_its_place_until_it_returns() -> None:
    started, may_look, returned = anyio.Event(), threading.Event(), anyio.Event()
    seen: list[bool] = []

    def work(context: InvocationContext) -> None:
        seen.append(context.cancelled)
        anyio.from_thread.run_sync(started.set)
        assert may_look.wait(PATIENCE_SECONDS)
        seen.append(context.cancelled)
        anyio.from_thread.run_sync(returned.set)

    context = InvocationContext()
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execute, work, context)
            await started.wait()
            tasks.cancel_scope.cancel()
        assert thread_limiter().borrowed_tokens == 1
        may_look.set()
        await returned.wait()
        while thread_limiter().borrowed_tokens:
            await anyio.lowlevel.checkpoint()
    assert seen == [False, True]
    assert not context.cancelled, "only the one call was given up"


class Watched(BaseModel):
    """A model whose validation waits for the event loop."""

    value: Annotated[str, AfterValidator(lambda value: passed.wait(DEADLINE_SECONDS) and value)]


passed = threading.Event()
DEADLINE_SECONDS = 30


@pytest.mark.parametrize("kind", ["async", "in place", "thread"])
async def test_the_event_loop_goes_on_while_large_arguments_are_read(kind: str) -> None:
    async def measure(watched: Watched) -> int:
        return len(watched.value)

    def measure_in_a_thread(watched: Watched) -> int:
        return len(watched.value)

    passed.clear()
    function = measure if kind == "async" else tool(run_in_thread=kind == "thread")(measure_in_a_thread)
    results: list[str] = []

    async def call() -> None:
        results.append((await execute(function, watched={"value": "x" * LARGE_BYTES})).text)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        passed.set()
    assert results == [str(LARGE_BYTES)]


SPECIFICATION = ToolSpecification(name="show")


class Plain:
    """An executor of another program."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned
        self.thread = threading.current_thread()


class Blocking(Plain):
    def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> Any:
        self.thread = threading.current_thread()
        return self.returned


class Async(Plain):
    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> Any:
        return self.returned


class Delegating(Plain):
    def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> Any:
        return Async(self.returned).execute(request, context)


@pytest.mark.parametrize("kind", [Blocking, Async, Delegating])
@pytest.mark.parametrize(
    ("returned", "text"),
    [("text", "text"), (None, "Success"), ({"a": 1}, '{"a":1}'), (ToolExecutionResult.of_text("result"), "result")],
)
async def test_an_executor_may_be_synchronous_and_return_anything(kind: type[Plain], returned: Any, text: str) -> None:
    executor = kind(returned)
    made: Any = Tool(SPECIFICATION, executor)  # type: ignore[arg-type]  # what an untyped program passes
    assert (await execute(made)).text == text
    assert (await execute(guarded(made, output_guardrails=lambda _: None))).text == text
    assert (executor.thread is threading.main_thread()) is (kind is not Blocking)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (functools.partial(lambda text, *_: text, "partial"), "partial"),
        (Mock(return_value="mock", __module__=None), "mock"),
    ],
)
async def test_the_method_of_an_executor_may_be_any_callable(method: Any, text: str) -> None:
    made: Any = Tool(SPECIFICATION, SimpleNamespace(execute=method))
    assert (await execute(made)).text == text


async def test_tools_with_one_executor_are_equal() -> None:
    executor = Async("text")
    assert Tool(SPECIFICATION, executor) == Tool(SPECIFICATION, executor)
    assert Tool(SPECIFICATION, executor) != Tool(SPECIFICATION, Async("text"))


@pytest.mark.parametrize(
    ("executor", "problem"),
    [
        (Async, "the executor of 'show' is the class .* give an instance"),
        (SimpleNamespace(execute=lambda request: "text"), r"must have a method execute\(request, context\)"),
        (SimpleNamespace(execute=3), r"must have a method execute\(request, context\)"),
    ],
)
async def test_another_executor_is_refused(executor: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Tool(SPECIFICATION, executor)
