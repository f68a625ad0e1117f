from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import Caller, InvocationContext, ToolBox, ToolError, execute, tool
from bridge.errors import DefinitionError, MissingExtraError
from bridge.middleware.caching import cached
from bridge.middleware.guards import circuit_broken, rate_limited, retried
from bridge.tools import InvocationParameters, backed_up
from bridge.tools.execution import LOCAL, ExecutionPolicy
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from bridge.types import REQUEST_ID_META_KEY
from tests.service.fakes import DEADLINE_SECONDS

if TYPE_CHECKING:
    from bridge.tools.tool import Tool

pytestmark = pytest.mark.anyio


class Shop:
    """Counts its calls, and fails as often as the test wants."""

    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("lost")
        self.asked = 0

    @tool
    async def price(self, item: str = "tea") -> str:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise self.error
        return f"{item}: {self.asked}"


async def run(
    guarded: Tool, context: InvocationContext | None = None, policy: ExecutionPolicy = LOCAL, **arguments: Any
) -> ToolExecutionResult:
    request = ToolExecutionRequest(guarded.name, arguments)
    return await execute(ToolBox(guarded), request, context or InvocationContext(), policy)


async def test_a_rate_limit_tells_the_model_when_to_try_again() -> None:
    shop = Shop()
    limited = rate_limited(shop, 2, per_seconds=3600)
    results = [await run(limited) for _ in range(3)]
    assert [each.is_error for each in results] == [False, False, True]
    assert results[2].text.startswith("'price' was called too often; try again in ")
    assert shop.asked == 2


async def test_a_rate_limit_never_says_to_try_again_at_once() -> None:
    limited = rate_limited(Shop(), 100, per_seconds=10)  # a call's place comes back after a tenth of a second
    while not (result := await run(limited)).is_error:
        pass
    assert result.text == "'price' was called too often; try again in 1 second"


@pytest.mark.parametrize(("calls", "seconds"), [(1, 0.5), (1, 1.9), (1, 0), (1, float("inf")), (0, 1)])
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_rate_that_cannot_be_is_refused(calls: int, seconds: float) -> None:
    with pytest.raises(DefinitionError, match="at least 1"):
        rate_limited(Shop(), calls, per_seconds=seconds)


async def test_a_rate_limit_may_count_for_each_caller() -> None:
    limited = rate_limited(
        Shop(), 1, per_seconds=3600, key=lambda context: context.caller.name if context.caller else ""
    )
    ada, bob = (InvocationContext(caller=Caller(name)) for name in ("ada", "bob"))
    assert [(await run(limited, each)).is_error for each in (ada, bob, ada)] == [False, False, True]


async def test_a_circuit_breaks_after_failures_in_a_row() -> None:
    shop = Shop(failures=2)
    broken = circuit_broken(shop, failures=2, recovery_seconds=3600)
    texts = [(await run(broken)).text for _ in range(3)]
    assert texts == ["lost", "lost", "'price' does not work at present; try again in 3600 seconds"]
    assert shop.asked == 2


async def test_a_circuit_closes_when_one_try_succeeds() -> None:
    shop = Shop(failures=2)
    broken = circuit_broken(shop, failures=2, recovery_seconds=0.000_001)
    assert [(await run(broken)).text for _ in range(4)] == ["lost", "lost", "tea: 3", "tea: 4"]


async def test_what_an_author_says_on_purpose_breaks_no_circuit() -> None:
    shop = Shop(failures=5, error=ToolError("no such tea"))
    broken = circuit_broken(shop, failures=1)
    assert [(await run(broken)).text for _ in range(3)] == ["no such tea"] * 3


async def test_running_out_of_time_breaks_a_circuit() -> None:
    @tool
    async def hang() -> None:
        await anyio.sleep_forever()

    broken = circuit_broken(hang, failures=1)
    hurried = ExecutionPolicy(timeout_seconds=0.01)
    with anyio.fail_after(DEADLINE_SECONDS):
        assert "did not finish" in (await run(broken, policy=hurried)).text
        assert "does not work at present" in (await run(broken, policy=hurried)).text


async def test_who_leaves_neither_breaks_a_circuit_nor_mends_one() -> None:
    with anyio.CancelScope() as scope:

        @tool
        async def leave(stay: bool) -> None:
            if stay:
                raise ConnectionError("lost")
            scope.cancel()
            await anyio.sleep_forever()

        broken = circuit_broken(leave, failures=2, recovery_seconds=3600)
        await run(broken, stay=True)
        await run(broken, stay=False)
    assert (await run(broken, stay=True)).text == "lost"
    assert "does not work at present" in (await run(broken, stay=True)).text


async def test_an_answer_that_is_known_is_not_asked_for_again() -> None:
    shop = Shop()
    kept = cached(shop, ttl_seconds=3600)
    assert [(await run(kept, item=item)).text for item in ("tea", "milk", "tea")] == ["tea: 1", "milk: 2", "tea: 1"]


async def test_an_answer_serves_only_the_same_caller_in_the_same_conversation() -> None:
    shop = Shop()
    kept = cached(shop, ttl_seconds=3600)
    contexts = [
        InvocationContext(),
        InvocationContext(caller=Caller("ada")),
        InvocationContext(memory_id="ada"),
        InvocationContext(caller=Caller("ada")),
    ]
    assert [(await run(kept, each)).text for each in contexts] == ["tea: 1", "tea: 2", "tea: 3", "tea: 2"]


PARAMETERS = [InvocationParameters(user=user) for user in ("ada", "bob")]


@pytest.mark.parametrize(
    "contexts",
    [
        [InvocationContext(parameters=each) for each in PARAMETERS],
        [InvocationContext(parameters={"user": value}) for value in (1, True, "1", [1], {"1": 1}, object(), object())],
        [InvocationContext(caller=Caller("ada", frozenset(scopes))) for scopes in ((), ("admin",))],
        [InvocationContext(caller=Caller("ada", claims={"tenant": tenant})) for tenant in ("one", "two")],
        [InvocationContext(memory_id=each) for each in (1, "1", None)],
    ],
)
async def test_an_answer_serves_nobody_whom_the_function_can_tell_apart(contexts: list[InvocationContext]) -> None:
    kept = cached(Shop(), ttl_seconds=3600)
    expected = [f"tea: {number}" for number in range(1, len(contexts) + 1)]
    for _ in range(2):
        assert [(await run(kept, each)).text for each in contexts] == expected


async def test_an_answer_of_a_tool_that_sees_headers_and_metadata_depends_on_them() -> None:
    @tool
    async def whoami(context: InvocationContext) -> str:
        runs.append(context)
        return f"{context.headers.get('x-user')} {context.meta.get('user')}"

    @tool
    async def count() -> int:
        return len(seen)

    runs: list[InvocationContext] = []
    seen: list[str] = []
    contexts = [InvocationContext(headers={"x-user": "ada"}), InvocationContext(meta={"user": "bob"})]
    contexts += [InvocationContext(meta={"user": "bob", REQUEST_ID_META_KEY: each}) for each in ("1", "2")]
    kept = cached(whoami, ttl_seconds=3600)
    assert [(await run(kept, each)).text for each in contexts] == ["ada None", *["None bob"] * 3]
    assert len(runs) == 2  # the id of a request makes no difference
    blind = cached(count, ttl_seconds=3600)
    await run(blind, contexts[0])
    seen.append("one")
    assert (await run(blind, contexts[1])).text == "0"


async def test_a_key_says_who_shares_answers() -> None:
    shop = Shop()
    kept = cached(shop, ttl_seconds=3600, key=lambda context: context.parameters.get("tenant"))
    contexts = [InvocationContext(parameters={"tenant": tenant, "user": user}) for tenant, user in ("aA", "aB", "bA")]
    assert [(await run(kept, each)).text for each in contexts] == ["tea: 1", "tea: 1", "tea: 2"]
    assert (await run(kept, contexts[0], item="milk")).text == "milk: 3"


class Counter:
    """Waits until it is released, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.error: Exception | None = None

    @tool
    async def count(self) -> int:
        self.runs += 1
        number = self.runs
        self.begun.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return number


@pytest.mark.parametrize("error", [None, ToolError("closed")])
async def test_identical_calls_at_the_same_time_share_one_run(error: Exception | None) -> None:
    counter, texts = Counter(), list[str]()
    counter.error = error
    kept = cached(counter, ttl_seconds=3600)

    async def ask() -> None:
        texts.append((await run(kept)).text)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
            await counter.begun.wait()
            await anyio.wait_all_tasks_blocked()
            counter.go.set()
    assert (texts, counter.runs) == ([str(error or 1)] * 5, 1)


async def test_a_caller_that_leaves_takes_nobodys_answer_away() -> None:
    counter, texts, leaving = Counter(), list[str](), anyio.CancelScope()
    kept = cached(counter, ttl_seconds=3600)

    async def leave() -> None:
        with leaving:
            await run(kept)

    async def ask() -> None:
        texts.append((await run(kept)).text)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(leave)
            await counter.begun.wait()
            for _ in range(3):
                group.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            leaving.cancel()
            await anyio.wait_all_tasks_blocked()
            counter.go.set()
    assert (texts, counter.runs) == (["2"] * 3, 2)


async def test_what_a_caller_has_answered_is_its_own() -> None:
    shop = Shop()
    kept = cached(shop, ttl_seconds=3600)
    assert [(await run(kept, InvocationContext(round=number))).text for number in (1, 0, 1)] == [
        "tea: 1",
        "tea: 2",
        "tea: 3",
    ]


async def test_an_error_is_not_kept_and_neither_is_more_than_there_is_room_for() -> None:
    shop = Shop(failures=1)
    kept = cached(shop, ttl_seconds=3600, max_entries=1)
    texts = [(await run(kept, item=item)).text for item in ("tea", "tea", "tea", "milk", "tea")]
    assert texts == ["lost", "tea: 2", "tea: 2", "milk: 3", "tea: 4"]


async def test_what_fails_is_run_again_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(failures=2)
    again = retried(shop, attempts=3, first_wait_seconds=0)
    assert (await run(again)).text == "tea: 3"
    assert [record.message for record in caplog.records] == [
        "the tool 'price' failed (lost); attempt 2 follows",
        "the tool 'price' failed (lost); attempt 3 follows",
    ]


async def test_what_fails_too_often_fails_as_itself() -> None:
    shop = Shop(failures=9)
    assert (await run(retried(shop, attempts=2, first_wait_seconds=0))).text == "lost"
    assert shop.asked == 2


@pytest.mark.parametrize(("item", "asked"), [("tea", 1), (["tea"], 0)])
async def test_words_on_purpose_and_wrong_arguments_are_not_tried_again(item: Any, asked: int) -> None:
    shop = Shop(failures=1, error=ToolError("no"))
    assert (await run(retried(shop, first_wait_seconds=0), item=item)).is_error
    assert shop.asked == asked


async def test_what_is_worth_another_try_can_be_said() -> None:
    shop = Shop(failures=1, error=ToolError("busy"))
    assert (await run(retried(shop, first_wait_seconds=0, when=lambda error: True))).text == "tea: 2"


async def test_guards_stand_around_each_other_and_the_tool_stays_itself() -> None:
    shop = Shop(failures=1)
    guarded = cached(
        retried(circuit_broken(rate_limited(shop, 2, per_seconds=3600)), first_wait_seconds=0), ttl_seconds=3600
    )
    assert [(await run(guarded)).text for _ in range(3)] == ["tea: 2"] * 3
    assert guarded.specification.name == "price"
    assert list(guarded.specification.parameters["properties"]) == ["item"]


@pytest.mark.parametrize(
    ("module", "guard"),
    [
        ("throttled", lambda source: rate_limited(source, 1, per_seconds=1)),
        ("circuitbreaker", circuit_broken),
        ("cachetools", lambda source: cached(source, ttl_seconds=1)),
        ("tenacity", retried),
    ],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_library_that_is_not_installed_is_said(
    monkeypatch: pytest.MonkeyPatch, module: str, guard: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"mcp-toolbridge\[guards\]"):
        guard(Shop())


async def test_a_guard_stands_around_one_tool() -> None:
    with pytest.raises(DefinitionError, match=r"expected one tool, but .* has 2"):
        retried([Shop(), Shop()])


async def test_a_rate_limit_waits_for_its_turn_but_no_longer_than_told() -> None:
    shop = Shop()
    patient = rate_limited(shop, 20, per_seconds=1, max_wait_seconds=1)  # a call's place comes back after 50 ms
    results = [await run(patient) for _ in range(22)]
    assert not any(each.is_error for each in results)
    impatient = rate_limited(shop, 1, per_seconds=3600, max_wait_seconds=5)
    assert [(await run(impatient)).is_error for _ in range(2)] == [False, True]
    with pytest.raises(DefinitionError, match="max_wait_seconds must be a number of seconds of at least 0"):
        rate_limited(shop, 1, per_seconds=1, max_wait_seconds=-1)


async def test_fallbacks_run_in_order_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def source(name: str, error: Exception | None = None) -> Any:
        @tool(name="price")
        async def price(item: str) -> str | ToolExecutionResult:
            ran.append(name)
            if error is not None:
                raise error
            return ToolExecutionResult.error("remote failure") if name == "remote" else f"{item} at {name}"

        return price

    broken = source("first", ConnectionError("gone"))
    for fallbacks, text, order in (
        ([source("second"), source("third")], "tea at second", ["first", "second"]),
        (
            [source("remote"), source("second", ToolError("busy")), "No price."],
            "No price.",
            ["first", "remote", "second"],
        ),
        ([source("second", ToolError("busy"))], "busy", ["first", "second"]),
    ):
        ran.clear()
        result = await run(backed_up(broken, *fallbacks), item="tea")
        assert (result.text, ran, result.is_error) == (text, order, text == "busy")
    assert "the tool 'price' failed (gone); a fallback follows" in caplog.text
    ran.clear()
    assert (await run(backed_up(broken, "No price."), unknown=1)).is_error
    assert ran == []
    with pytest.raises(DefinitionError, match="needs a fallback"):
        backed_up(broken)
