"""A gateway passes arguments, results, questions and states on unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.client.connection.running_call import CallOptions
from bridge.errors import ServerRefusedError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import URL_ELICITATION_REQUIRED
from bridge.tools.content import Text
from bridge.tools.questions import Elicitation, InputRequired
from bridge.tools.tool import ToolExecutionResult
from tests.gateway.between import Journal, between, first_round, next_round, server_config, text_of
from tests.server.tools import NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("era", [MODERN, "legacy"])
CALLERS = pytest.mark.parametrize("caller_era", [MODERN, "legacy"])


async def echo(arguments: Mapping[str, Any], context: InvocationContext) -> str:
    return repr(dict(arguments))


@ERAS
async def test_arguments_go_as_they_came_whatever_the_schema_says(era: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    config = server_config(made("echo", echo, parameters=schema), era=era)
    arguments = {"a": "1", "b": [None, 1e300, {"c": "é"}]}
    async with between(config) as (_, connection):
        assert text_of(await connection.call_tool("echo", arguments)) == repr(arguments)


@ERAS
async def test_a_result_is_not_judged_and_comes_as_it_is(era: str) -> None:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> ToolExecutionResult:
        return ToolExecutionResult((), {"sum": "not a number"}, metadata={"example.org/cost": 3})

    schema = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
    async with between(server_config(made("off", body, output_schema=schema), era=era)) as (_, connection):
        result = await connection.call_tool("off", {})
    assert result["content"] == []
    assert result["structuredContent"] == {"sum": "not a number"}
    assert result["_meta"]["example.org/cost"] == 3
    assert result["isError"] is False


async def test_a_result_says_that_the_gateway_made_it_and_not_which_server_did() -> None:
    async with between(server_config(made("echo", echo), era=MODERN)) as (_, connection):
        result = await connection.call_tool("echo", {})
    names = [value["name"] for key, value in result.get("_meta", {}).items() if key.endswith("/serverInfo")]
    assert names in ([], ["gateway"])


@CALLERS
async def test_a_modern_servers_question_is_answered_whatever_the_callers_era(caller_era: str) -> None:
    journal = Journal()
    async with between(server_config(journal.greeter(), era=MODERN), era=caller_era) as (_, connection):
        assert text_of(await connection.call_tool("greet", {})) == "Hello Ada"
    assert [entry for entry in journal.entries if entry != "began"] == ["ended"]


async def test_a_modern_servers_question_is_passed_on_and_nothing_is_held() -> None:
    journal = Journal()
    async with between(server_config(journal.greeter(), era=MODERN), max_held_calls=0) as (_, connection):
        asked = await first_round(connection)
        assert list(asked["inputRequests"]) == ["who"]
        assert text_of(await next_round(connection, asked)) == "Hello Ada"
    assert journal.entries.count("ended") == 1


async def test_a_modern_servers_question_can_be_answered_at_another_gateway() -> None:
    journal = Journal()
    config = server_config(journal.greeter(), era=MODERN)
    async with between(config) as (_, here), between(config) as (_, there):
        asked = await first_round(here)
        assert text_of(await next_round(there, asked)) == "Hello Ada"
    assert journal.entries.count("ended") == 1


@CALLERS
async def test_a_server_may_ask_under_the_same_key_again(caller_era: str) -> None:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        left = context.resumption
        count = 0 if left is None else left.state + 1
        if count == 3:
            return "enough"
        raise InputRequired({"name": Elicitation(f"try {count}", NAME_FORM)}, count)

    async with between(server_config(made("ask", body), era=MODERN), era=caller_era) as (_, connection):
        assert text_of(await connection.call_tool("ask", {})) == "enough"


async def test_a_server_that_never_has_enough_is_given_up_by_whoever_answers_in_place() -> None:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        raise InputRequired({"name": Elicitation("again?", NAME_FORM)}, 1)

    async with between(server_config(made("ask", body), era=MODERN), era="legacy") as (_, connection):
        result = await connection.call_tool("ask", {})
    assert (result["isError"], text_of(result)) == (
        True,
        "the tool 'ask' of the server 'upstream' asks more than 10 times",
    )


async def test_a_modern_caller_that_cannot_be_asked_is_told_what_it_lacks() -> None:
    config = server_config(Journal().greeter(), era=MODERN)
    async with between(config, can_be_asked=False) as (_, connection):
        with pytest.raises(ServerRefusedError) as caught:
            await connection.call_tool("greet", {})
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_an_older_caller_that_cannot_be_asked_gets_an_error_result() -> None:
    config = server_config(Journal().greeter(), era=MODERN)
    async with between(config, era="legacy", can_be_asked=False) as (_, connection):
        result = await connection.call_tool("greet", {})
    assert result["isError"]
    assert "elicitation" in text_of(result)


@ERAS
async def test_an_error_result_comes_as_it_is(era: str) -> None:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> ToolExecutionResult:
        return ToolExecutionResult((Text("no bananas"),), is_error=True)

    async with between(server_config(made("fail", body), era=era)) as (_, connection):
        result = await connection.call_tool("fail", {})
    assert (result["isError"], text_of(result)) == (True, "no bananas")


@ERAS
async def test_a_person_may_decline(era: str) -> None:
    config = server_config(Journal().greeter(), era=era)
    async with between(config) as (_, connection):
        asked = await first_round(connection)
        declined = await next_round(connection, asked, {"action": "decline"})
    assert text_of(declined) == "Hello None"


@ERAS
async def test_pages_to_visit_before_a_call_reach_the_caller(era: str) -> None:
    pages = {"elicitations": [{"mode": "url", "elicitationId": "1", "url": "https://example.org", "message": "Log in"}]}

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        raise CallRefused(ProtocolError(URL_ELICITATION_REQUIRED, "log in first", pages))

    hands_on = CallOptions(hands_on_questions=True)
    async with between(server_config(made("login", body), era=era)) as (_, connection):
        if era == "legacy":  # whose error the caller's era has no more: it is asked to visit the page
            asked = await connection.call_tool("login", {}, options=hands_on)
            (question,) = asked["inputRequests"].values()
            assert question["params"]["url"] == "https://example.org"
            return
        with pytest.raises(ServerRefusedError) as caught:
            await connection.call_tool("login", {}, options=hands_on)
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32042, "log in first", pages)


async def test_a_state_that_another_process_sealed_is_told_that_the_outcome_is_unknown() -> None:
    journal = Journal()
    config = server_config(journal.greeter())
    async with (
        between(config) as (_, here),
        between(config, state_keys=[b"the key of another process altogether"]) as (
            _,
            there,
        ),
    ):
        asked = await first_round(here)
        with pytest.raises(ServerRefusedError, match="its outcome is unknown, and it was not run again"):
            await next_round(there, asked)
    assert "ended" not in journal.entries
    assert journal.entries.count("began") == 1
