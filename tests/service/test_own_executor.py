"""Tools in an executor of the program, in place of the shared worker threads."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import DefinitionError, InvocationContext, tool
from bridge.service import ToolProgress, call_blocking
from tests.service.fakes import DEADLINE_SECONDS, Assistant, ask, assistant, call, calls

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2, thread_name_prefix="own") as pool:
        yield pool


async def test_functions_run_in_it_together_and_keep_their_context(way: str, pool: ThreadPoolExecutor) -> None:
    both = threading.Barrier(2, timeout=DEADLINE_SECONDS)

    @tool
    def work(context: InvocationContext) -> str:
        both.wait()
        context.blocking.progress(1)
        return f"{threading.current_thread().name[:3]} {call_blocking(in_the_loop) == loop_thread}"

    async def in_the_loop() -> int:
        return threading.get_ident()

    @tool
    async def here() -> str:
        return str(threading.get_ident() == loop_thread)

    loop_thread = threading.get_ident()
    wanted = [call(name, str(i)) for i, name in enumerate(["work", "here", "work"])]
    service = assistant(calls(*wanted), "Done.", tools=[work, here], execute_tools_concurrently=pool)
    result = await ask(service, way)
    assert [execution.result.text for execution in result.tool_executions] == ["own True", "True", "own True"]
    stream = assistant(calls(*wanted), "Done.", tools=[work, here], execute_tools_concurrently=pool).stream("Go")
    assert len([event async for event in stream if isinstance(event, ToolProgress)]) == 2


async def test_a_service_inside_a_tool_uses_its_own_threads(way: str, pool: ThreadPoolExecutor) -> None:
    @tool
    def name() -> str:
        return threading.current_thread().name

    inner: Assistant = assistant(calls(call("name")), "Done.", tools=[name])

    @tool
    def outer() -> str:
        return call_blocking(inner.chat, "Go").tool_executions[0].result.text

    service = assistant(calls(call("outer")), "Done.", tools=[outer], execute_tools_concurrently=pool)
    result = await ask(service, way)
    assert not result.tool_executions[0].result.text.startswith("own")


async def test_a_cancelled_call_leaves_its_place_and_later_calls_run(pool: ThreadPoolExecutor) -> None:
    running, proceed, ran = threading.Semaphore(0), threading.Event(), list[int]()

    @tool
    def block(number: int) -> None:
        ran.append(number)
        running.release()
        proceed.wait(DEADLINE_SECONDS)

    wanted = [call("block", str(i), number=i) for i in range(4)]
    service = assistant(calls(*wanted), tools=[block], execute_tools_concurrently=pool)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(service.chat, "Go")
            for _ in range(2):
                assert await anyio.to_thread.run_sync(running.acquire, True, DEADLINE_SECONDS)
            group.cancel_scope.cancel()
    proceed.set()
    follow_up = assistant(calls(call("block", "5", number=5)), "Done.", tools=[block], execute_tools_concurrently=pool)
    await follow_up.chat("Go")
    assert ran == [*ran[:2], 5]


def test_an_executor_of_processes_is_refused() -> None:
    with ProcessPoolExecutor(1) as processes, pytest.raises(DefinitionError, match="in processes"):
        assistant(execute_tools_concurrently=processes)
