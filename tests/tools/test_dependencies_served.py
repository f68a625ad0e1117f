"""Dependencies of what is served: over a connection, in tasks, and replaced in tests."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import anyio
import pytest

from bridge import (
    Caller,
    ClientHandlers,
    Depends,
    InvocationContext,
    ToolBox,
    ToolExecutionRequest,
    ai_service,
    execute,
    prompt,
    resource,
    tool,
    tools_from,
)
from bridge.testing import ScriptedChatModel, connected, overriding, recorded
from bridge.tools import ElicitationAnswer

on_both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])

LOG: list[str] = []
"""Events, in order."""


@pytest.fixture(autouse=True)
def _empty() -> None:
    LOG.clear()


async def run(function: Callable[..., Any]) -> str:
    """Run a function as a tool; returns the text of its result."""
    (found,) = tools_from(function)
    return (await execute(ToolBox(found), ToolExecutionRequest(found.name), InvocationContext())).text


def one() -> int:
    return 1


async def two() -> int:
    return 2


@asynccontextmanager
async def transaction() -> AsyncIterator[str]:
    try:
        yield "open"
    except BaseException as error:
        await anyio.lowlevel.checkpoint()
        LOG.append(f"rolled back: {type(error).__name__}")
        raise
    else:
        LOG.append("committed")


Db = Annotated[str, Depends(transaction)]


@dataclass
class Sure:
    sure: bool


@pytest.mark.anyio
@on_both
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_question_closes_what_is_open_if_it_ends_the_run(protocol: Any) -> None:
    async def ask(db: Db, context: InvocationContext) -> str:
        answer = await context.elicit("Sure?", Sure)
        return f"{db} {answer.data}"

    async def answer(*_: object) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {"sure": True})

    async with connected(ask, protocol=protocol, handlers=ClientHandlers(elicitation=answer)) as provider:
        assert (await provider.call("ask")).text == "open Sure(sure=True)"
    assert (["committed"] if protocol == "legacy" else ["rolled back: InputRequired", "committed"]) == LOG


@pytest.mark.anyio
@on_both
async def test_what_is_open_stays_open_in_a_task(anyio_backend: str) -> None:
    if anyio_backend == "trio":
        return  # tasks run on asyncio
    release = anyio.Event()

    @tool(task=True)
    async def work(db: Db) -> str:
        await release.wait()
        LOG.append("worked")
        return db

    async with connected(work, protocol="2026-07-28") as provider:
        task = await provider.start("work")
        assert LOG == []
        release.set()
        assert (await task.result()).text == "open"
    assert LOG == ["worked", "committed"]


async def greeting(context: InvocationContext, caller: Caller | None) -> str:
    return f"{caller and caller.name} {context.caller is caller}"


@pytest.mark.anyio
@on_both
async def test_a_dependency_may_take_the_context_and_the_caller() -> None:
    def in_thread(context: InvocationContext, text: Annotated[str, Depends(greeting)]) -> str:
        return f"{type(context).__name__} {text}"

    async def greet(text: Annotated[str, Depends(in_thread)]) -> str:
        return text

    async with connected(greet, caller=Caller("ada")) as provider:
        assert (await provider.call("greet")).text == "ThreadContext ada True"


@pytest.mark.anyio
@on_both
async def test_resources_prompts_and_completions_have_dependencies() -> None:
    async def names(text: str, arguments: object, context: InvocationContext, db: Db) -> list[str]:
        return [f"{text}-{db}"]

    def more_names(
        text: str, arguments: object, context: object, db: Annotated[str, Depends(transaction)]
    ) -> list[str]:
        return [f"{text}-{db}-{context.__class__.__name__}"]

    @resource("notes://today")
    async def today(db: Db) -> str:
        return f"today: {db}"

    @resource("notes://{name}", completions={"name": names})
    def note(name: str, db: Db) -> str:
        return f"{name}: {db}"

    @prompt(completions={"topic": more_names})
    def review(topic: str, db: Db) -> str:
        return f"{topic}: {db}"

    async with connected(today, note, review) as provider:
        assert (await provider.resources.read("notes://today"))[0].content == "today: open"
        assert (await provider.resources.read("notes://x"))[0].content == "x: open"
        assert (await provider.resources.complete("notes://{name}", "name", "x")).values == ("x-open",)
        messages = await provider.prompts.render("review", {"topic": "tests"})
        assert messages[0].content.text == "tests: open"  # type: ignore[union-attr]
        found = await provider.prompts.complete("review", "topic", "t")
        assert found.values == ("t-open-ThreadContext",)
    assert LOG == ["committed"] * 5


@pytest.mark.anyio
@on_both
async def test_tests_provide_other_values() -> None:
    def fake() -> Iterator[str]:
        yield "fake"
        LOG.append("fake closed")

    async def use(db: Db, number: Annotated[int, Depends(one)]) -> str:
        return f"{db} {number}"

    async with connected(use, overrides={transaction: fake, one: two, two: one}) as provider:
        assert (await provider.call("use")).text == "fake 2"
    assert LOG == ["fake closed"]
    with overriding({transaction: fake}), overriding({one: lambda: 7}):
        assert await run(use) == "fake 7"
    assert await run(use) == "open 1"


class Assistant(Protocol):
    async def chat(self, message: str) -> str: ...


@pytest.mark.anyio
@on_both
async def test_tools_of_an_ai_service_have_dependencies() -> None:
    async def use(db: Db, text: str) -> str:
        return f"{text}: {db}"

    model = ScriptedChatModel([ToolExecutionRequest("use", {"text": "x"}), "Done."])
    watched, calls = recorded(use)
    assert await ai_service(Assistant, chat_model=model, tools=[watched]).chat("Go.") == "Done."
    assert [call.result.text for call in calls if call.result] == ["x: open"]
    assert LOG == ["committed"]
