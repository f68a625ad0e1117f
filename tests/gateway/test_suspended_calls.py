"""A server of the handshake era and a caller of the modern era: the call is suspended, and runs once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from bridge.client import CallOptions
from bridge.errors import ServerRefusedError, ToolError
from bridge.gateway import Gateway
from bridge.gateway.suspended_calls import SuspendedCall, SuspendedCalls
from bridge.protocol.messages import ProtocolError
from bridge.tools.caller import Caller
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from tests.gateway.between import (
    ACCEPTED,
    DEADLINE_SECONDS,
    Journal,
    between,
    caller,
    first_round,
    next_round,
    server_config,
    text_of,
)
from tests.server.tools import NAME_FORM, Waiting, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Json

pytestmark = pytest.mark.anyio

UNKNOWN = "It is unknown whether it ran; it was not run again"


async def test_a_call_that_asks_goes_on_with_the_next_request_and_has_run_once() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter())) as (_, connection):
        asked = await first_round(connection)
        (question,) = asked["inputRequests"].values()
        assert question["params"]["message"] == "Who are you?"
        assert question["params"]["requestedSchema"] == NAME_FORM
        assert journal.entries == ["began"]
        assert text_of(await next_round(connection, asked)) == "Hello Ada"
    assert journal.entries == ["began", "ended"]


async def test_several_questions_of_one_call_are_asked_one_round_after_the_other() -> None:
    runs = 0

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        nonlocal runs
        runs += 1
        names = [(await context.elicit(f"{place}?", NAME_FORM)).content for place in ("first", "second", "third")]
        return " ".join(str(name and name["name"]) for name in names)

    async with between(server_config(made("ask", body))) as (_, connection):
        asked = await first_round(connection, "ask")
        for name in ("one", "two"):
            answer = {"action": "accept", "content": {"name": name}}
            asked = await next_round(connection, asked, answer, "ask")
            assert asked["resultType"] == "input_required"
        assert text_of(await next_round(connection, asked, ACCEPTED, "ask")) == "one two Ada"
    assert runs == 1


async def test_an_answer_that_comes_twice_is_told_that_the_outcome_is_unknown() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter())) as (_, connection):
        asked = await first_round(connection)
        assert text_of(await next_round(connection, asked)) == "Hello Ada"
        again = await next_round(connection, asked)
        assert again["isError"]
        assert UNKNOWN in text_of(again)
    assert journal.entries == ["began", "ended"]


async def test_an_answer_that_reaches_another_process_is_told_that_the_outcome_is_unknown() -> None:
    journal = Journal()
    config = server_config(journal.greeter())
    async with between(config) as (_, here), Gateway([config]) as elsewhere, caller(elsewhere) as there:
        asked = await first_round(here)
        astray = await next_round(there, asked)
        assert astray["isError"]
        assert "it started elsewhere. " + UNKNOWN in text_of(astray)
        assert journal.entries == ["began"]
        assert text_of(await next_round(here, asked)) == "Hello Ada"
    assert journal.entries == ["began", "ended"]


async def test_a_call_whose_answer_never_comes_is_cancelled_at_its_server() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter()), held_seconds=0.01) as (_, connection):
        asked = await first_round(connection)
        await journal.cancelled.wait()
        late = await next_round(connection, asked)
        assert late["isError"]
        assert "waited too long, or was cancelled. " + UNKNOWN in text_of(late)
    assert journal.entries == ["began", "cancelled"]


async def test_where_too_many_wait_a_question_is_refused_and_the_call_goes_on() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter()), max_held_calls=1) as (_, connection):
        asked = await first_round(connection)
        refused = await connection.call_tool("greet", {}, options=CallOptions(hands_on_questions=True))
        assert refused["isError"]
        assert "too many calls are waiting for answers" in text_of(refused)
        assert text_of(await next_round(connection, asked)) == "Hello Ada"
    assert [entry.partition(":")[0] for entry in journal.entries] == ["began", "began", "refused", "ended"]
    refusal = journal.errors[0].__cause__
    assert isinstance(refusal, ProtocolError)
    assert (refusal.code, refusal.data) == (-32005, {"retryAfterSeconds": 10})


async def test_an_answer_that_is_none_is_refused_and_a_better_one_still_counts() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter())) as (_, connection):
        asked = await first_round(connection)
        with pytest.raises(ServerRefusedError) as caught:
            await next_round(connection, asked, {"action": "perhaps"})
        assert caught.value.code == -32602
        assert text_of(await next_round(connection, asked)) == "Hello Ada"
    assert journal.entries == ["began", "ended"]


async def test_a_request_without_the_answer_is_asked_again() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter())) as (_, connection):
        asked = await first_round(connection)
        state = asked["requestState"]
        again = await connection.call_tool(
            "greet", {}, options=CallOptions(hands_on_questions=True, request_state=state)
        )
        assert again["inputRequests"] == asked["inputRequests"]
        assert text_of(await next_round(connection, again)) == "Hello Ada"
    assert journal.entries == ["began", "ended"]


async def test_a_caller_that_gives_up_ends_the_call_at_its_server() -> None:
    waiting = Waiting()
    async with between(server_config(waiting.tool)) as (_, connection), anyio.create_task_group() as tasks:
        tasks.start_soon(connection.call_tool, "wait", {})
        await waiting.started.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(DEADLINE_SECONDS):
            await waiting.cancelled.wait()


async def test_a_caller_that_gives_up_in_its_second_round_ends_the_call_too() -> None:
    answered, cancelled = anyio.Event(), anyio.Event()

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        await context.elicit("Who are you?", NAME_FORM)
        answered.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return "never"

    async with between(server_config(made("greet", body))) as (_, connection), anyio.create_task_group() as tasks:
        tasks.start_soon(next_round, connection, await first_round(connection))
        await answered.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(DEADLINE_SECONDS):
            await cancelled.wait()


async def test_a_gateway_that_closes_ends_the_calls_that_wait() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter())) as (gateway, connection):
        await first_round(connection)
        await gateway.aclose()
        await journal.cancelled.wait()
    assert journal.entries == ["began", "cancelled"]


async def test_progress_of_every_round_reaches_the_request_of_that_round() -> None:
    class Hears(Channel):
        def __init__(self) -> None:
            self.heard: list[float] = []

        async def progress(self, progress: float, total: float | None, message: str | None) -> None:
            self.heard.append(progress)

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        await context.progress(1)
        await context.elicit("Who are you?", NAME_FORM)
        await context.progress(2)
        return "done"

    first, second = Hears(), Hears()
    async with between(server_config(made("greet", body))) as (_, connection):
        asked = await connection.call_tool(
            "greet", {}, context=InvocationContext(channel=first), options=CallOptions(hands_on_questions=True)
        )
        await connection.call_tool(
            "greet",
            {},
            context=InvocationContext(channel=second),
            options=CallOptions(
                hands_on_questions=True,
                input_responses=dict.fromkeys(asked["inputRequests"], ACCEPTED),
                request_state=asked["requestState"],
            ),
        )
    assert (first.heard, second.heard) == ([1], [2])


async def test_a_caller_that_cannot_be_asked_is_not_and_the_server_is_told() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter()), can_be_asked=False) as (_, connection):
        result = await connection.call_tool("greet", {}, options=CallOptions(hands_on_questions=True))
        assert result["isError"]
    (began, refused) = journal.entries
    assert began == "began"
    assert refused.startswith("refused: ")


async def test_calls_of_one_caller_that_wait_leave_room_for_another_callers() -> None:
    holding = SuspendedCalls(max_held_calls=4)

    async def call(context: InvocationContext) -> Json:
        await anyio.sleep_forever()
        return {}

    def held_by(name: str) -> SuspendedCall:
        return holding.begin(call, InvocationContext(caller=Caller(name)))

    kept = [held_by("ada"), held_by("ada")]
    states = [holding.keep(each) for each in kept]
    with pytest.raises(
        ToolError, match=r"may use the places that are left of 4; answer one, or try again in 10 seconds"
    ):
        holding.keep(held_by("ada"))
    holding.keep(held_by("bob"))
    resumed = holding.resume(states[0], InvocationContext(caller=Caller("ada")))
    holding.keep(resumed, beyond_limit=True)
    holding.cancel_all()
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(holding):
            await anyio.lowlevel.checkpoint()
    holding.keep(held_by("ada"))
    holding.keep(held_by("ada"))
    holding.cancel_all()
