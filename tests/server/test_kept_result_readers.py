"""Large results that are kept: who can read them, and which parts."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any

import pytest

from bridge import Caller, InvocationContext, tool
from bridge.server import Server
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.testing import connected
from bridge.tools import Spill
from bridge.tools.calls import ToolExecutionResult
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Handshake, Modern
from tests.server.large_results import (
    KINDS,
    LIMIT,
    contents,
    lines,
    links,
    now,
    read,
    read_text,
    result,
    served,
    text_of,
)


def is_not_found(answer: dict[str, Any]) -> bool:
    return answer["error"]["code"] in {-32002, -32602} and "there is no resource" in answer["error"]["message"]


def has_no_result(peer: Modern, uri: str) -> bool:
    found = result(peer, "read_result", uri=uri)
    return found["isError"] is True and "there is no kept result" in text_of(found)


@KINDS
def test_a_result_is_read_by_its_caller_alone(kind: type[Modern]) -> None:
    keys = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB), ApiKey("ada", "ada-again-ada-again-ada"))
    with served(kind=kind, app={"auth": Auth(keys)}) as (_, make):
        ada, bob = make(ADA), make(BOB)
        uri = links(result(ada, "now", count=300))[0]["uri"]
        assert is_not_found(read(bob, uri))
        assert has_no_result(bob, uri)
        again = make("ada-again-ada-again-ada")  # the same caller, by another key and in another session
        assert contents(again, uri)["text"] == lines(300)
        assert read_text(ada, uri, offset=5, length=4).endswith("\n0 of")


def test_without_authentication_a_session_is_a_caller() -> None:
    with served(kind=Handshake) as (_, make):
        one, two = make(), make()
        uri = links(result(one, "now", count=300))[0]["uri"]
        assert is_not_found(read(two, uri))
        assert has_no_result(two, uri)
        assert contents(one, uri)["text"] == lines(300)


def test_what_was_kept_in_a_session_is_gone_at_its_end() -> None:
    keys = ApiKeys(ApiKey("ada", ADA))
    with served(kind=Handshake, app={"auth": Auth(keys)}) as (_, make):
        one, two = make(ADA), make(ADA)
        assert isinstance(one, Handshake)
        uris = [links(result(peer, "now", count=300))[0]["uri"] for peer in (one, two)]
        assert contents(two, uris[0])["text"] == lines(300)
        one.client.delete(one.url, headers=one.headers | one.credential).raise_for_status()
        deadline = monotonic() + http.DEADLINE_SECONDS
        while "error" not in (answer := read(two, uris[0])):
            assert monotonic() < deadline
        assert is_not_found(answer)
        assert contents(two, uris[1])["text"] == lines(300)


def test_a_caller_who_sees_some_tools_reads_their_results() -> None:
    keys = ApiKeys(ApiKey("some", BOB, tools=("now",)))
    with served(app={"auth": Auth(keys)}) as (_, make):
        peer = make(BOB)
        listed = [each["name"] for each in peer.ask(http.request("tools/list"))["result"]["tools"]]
        assert listed == ["now", "read_result"]
        uri = links(result(peer, "now", count=300))[0]["uri"]
        assert contents(peer, uri)["text"] == lines(300)


def test_ids_cannot_be_guessed_and_malformed_ones_are_not_found() -> None:
    with served() as (_, make):
        peer = make()
        uris = {links(result(peer, "now", count=300))[0]["uri"] for _ in range(3)}
        assert len(uris) == 3
        assert all(len(uri.removeprefix("kept-result:///")) == 32 for uri in uris)
        for wrong in (
            "kept-result:///",
            f"{min(uris)}/1",
            f"{min(uris)}/-1",
            f"{min(uris)}/{'9' * 500}",
            f"{min(uris)}x",
        ):
            assert is_not_found(read(peer, wrong)), wrong


@pytest.mark.anyio
async def test_at_a_logout_a_caller_is_forgotten() -> None:
    spill = Spill(chars=100)
    (echo,) = Server([now], name="tests").tools
    for name in ("ada", "bob"):
        context = InvocationContext(caller=Caller(name))
        kept = await spill.fitted(echo, ToolExecutionResult.of_text(lines(100)), context)
        assert kept.model_content is not None
        uri = kept.model_content[1].uri  # type: ignore[union-attr]  # a link
        assert await spill.find(uri, context) is not None
        await spill.forget("bob")
        assert (await spill.find(uri, context) is None) is (name == "bob")
    await spill.aclose()


@pytest.mark.anyio
async def test_the_links_are_followed_by_clients_on_every_event_loop() -> None:
    @tool(spill_chars=100)
    async def log(count: int) -> str:
        return lines(count)

    async with connected(log) as provider:
        found = await provider.call("log", count=50)
        assert len(found.content) == 2
        (file,) = await provider.resources.read(found.content[1].uri)  # type: ignore[union-attr]  # a link
        assert file.content == lines(50)


# --- reading parts ---------------------------------------------------------------------------------------------------


def test_parts_of_a_text_are_read_by_offset_line_and_search() -> None:
    with served() as (_, make):
        peer = make()
        uri = links(result(peer, "now", count=300))[0]["uri"]
        whole = lines(300)
        first = read_text(peer, uri)
        assert first == f"[characters 0 to 1,000 of {len(whole):,}; continue with offset=1000]\n{whole[:1000]}"
        assert read_text(peer, uri, offset=len(whole) - 3) == (
            f"[characters {len(whole) - 3:,} to {len(whole):,} of {len(whole):,}]\nlog"
        )
        assert len(read_text(peer, uri, length=10_000)) < LIMIT + 100
        assert (
            read_text(peer, uri, first_line=12, lines=2).partition("\n")[2]
            == "line 11 of the log\nline 12 of the log\n"
        )
        found = read_text(peer, uri, search="LINE 29 of").splitlines()
        assert found == ["[1 of 'LINE 29 of']", f"line 30, offset {whole.index('line 29 of')}: line 29 of the log"]
        many = read_text(peer, uri, search="log").splitlines()
        assert many[0].startswith("[51 or more of 'log', the first ")
        assert len("\n".join(many)) < LIMIT + 200
        assert read_text(peer, uri, search="absent") == "[0 of 'absent']"
        for wrong, problem in (({"first_line": 999}, "has 300 lines"), ({"path": "$.a"}, "is not JSON")):
            failed = result(peer, "read_result", uri=uri, **wrong)
            assert failed["isError"] is True
            assert problem in text_of(failed)


def test_parts_of_json_are_read_by_path() -> None:
    with served() as (_, make):
        peer = make()
        uri = links(result(peer, "undeclared", count=500))[0]["uri"]
        assert json.loads(read_text(peer, uri, path="$.rows[2:4]")) == [{"id": 2}, {"id": 3}]
        assert json.loads(read_text(peer, uri, path="$.rows[-1].id")) == 499
        assert read_text(peer, uri, path="$.rows[*].id", first_line=3, lines=1).partition("\n")[2] == " 1,\n"
        failed = result(peer, "read_result", uri=uri, path="$.rows[?@.id]")
        assert "is not a part of a path" in text_of(failed)
        assert "selects nothing" in text_of(result(peer, "read_result", uri=uri, path="$.absent"))


def test_parts_of_very_large_results_are_read() -> None:
    @tool
    async def many(count: int) -> Any:
        return {"rows": [{"id": number} for number in range(count)]}

    with served(many) as (_, make):
        peer = make()
        uri = links(result(peer, "many", count=50_000))[0]["uri"]
        assert json.loads(read_text(peer, uri, path="$.rows[49999].id")) == 49_999
        assert "[1 of '\"id\":49999}']" in read_text(peer, uri, search='"id":49999}')
