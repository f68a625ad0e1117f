from __future__ import annotations

import socket
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mcp.server.auth.provider import AccessToken

from bridge.server import http_app
from bridge.server.server import Server
from tests.server import http_server as http
from tests.server.cluster.speaking import Talk, call, logged, message_in, text_of
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.redis_server import RedisServer
    from tests.server.cluster.speaking import Replicas

DEADLINE_SECONDS = 30


class Names:
    """Verifier that takes every token for the name of its bearer."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id=token, scopes=[])


def listening() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(DEADLINE_SECONDS)
    return made


def test_a_session_goes_on_with_another_replica_in_either_way_of_answering(replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    assert talk.post(replicas.other, method="notifications/initialized").status_code == 202
    for url in (replicas.other, replicas.one, replicas.other):
        plain = talk.sum(url, 1, 2)
        assert (plain.status_code, text_of(message_in(plain))) == (200, "3")
    with talk.streamed(replicas.other, id="p", **call("slow_sum", token="t", a=2, b=2)) as events:
        *_, answer = events
        assert text_of(answer.message) == "4"


def test_a_session_that_nobody_opened_is_not_found(replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    assert talk.sum(replicas.other, 1, 2, **{"mcp-session-id": "0" * 32}).status_code == 404
    assert talk.sum(replicas.other, 1, 2, **{"mcp-session-id": "nonsense"}).status_code == 404
    assert talk.sum(replicas.other, 1, 2).status_code == 200


def test_a_session_is_revived_for_whoever_opened_it_alone(redis: RedisServer, serving: Callable[..., str]) -> None:
    apps = [http_app(Server(TOOLS, name="owned"), redis_url=redis.url, auth=Names()) for _ in range(2)]
    one, other = (f"{serving(app)}/mcp" for app in apps)
    talk = Talk(one, authorization="Bearer ada")
    for url in (other, one):
        assert talk.sum(url, 1, 2, authorization="Bearer eve").status_code == 404
    assert talk.sum(other, 1, 2).status_code == 200
    for url in (other, one):
        assert talk.sum(url, 1, 2, authorization="Bearer eve").status_code == 404


def test_servers_of_another_name_know_nothing_of_a_session(
    replicas: Replicas, redis: RedisServer, serving: Callable[..., str]
) -> None:
    stranger = f"{serving(http_app(Server(TOOLS, name='stranger'), redis_url=redis.url))}/mcp"
    assert Talk(replicas.one).sum(stranger, 1, 2).status_code == 404


@pytest.mark.parametrize("turn", [slice(None), slice(None, None, -1)], ids=["where it was opened", "elsewhere"])
def test_a_session_that_is_ended_anywhere_is_ended_everywhere(replicas: Replicas, turn: slice) -> None:
    talk = Talk(replicas.one)
    urls = [replicas.one, replicas.other]
    assert [talk.sum(url, 1, 2).status_code for url in urls] == [200, 200]
    ending, _ = urls[turn]
    assert talk.end(ending) == 200
    assert [talk.sum(url, 1, 2).status_code for url in urls] == [404, 404]
    assert talk.post(ending, method="ping", id=3).status_code == 404


def test_the_answer_to_a_question_reaches_the_replica_that_asked(replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    assert talk.sum(replicas.other, 1, 2).status_code == 200  # it is open in both
    with (
        talk.streamed(replicas.one, id=1, **call("greet")) as first,
        talk.streamed(replicas.other, id=2, **call("greet")) as second,
    ):
        asked = [next(event.message for event in stream if event.message) for stream in (first, second)]
        assert asked[0]["id"] != asked[1]["id"]
        for url, question, name in ((replicas.other, asked[0], "Ada"), (replicas.one, asked[1], "Grace")):
            answer = {"action": "accept", "content": {"name": name}}
            assert talk.post(url, id=question["id"], result=answer).status_code == 202
        assert [text_of(next(stream).message) for stream in (first, second)] == ["Hello Ada", "Hello Grace"]


@pytest.mark.parametrize("token", [None, "t"], ids=["without progress", "with progress"])
def test_a_cancellation_reaches_the_replica_that_runs_the_call(replicas: Replicas, token: str | None) -> None:
    talk = Talk(replicas.one)
    with listening() as listener:
        body = {"jsonrpc": "2.0", "id": 5, **call("hold", token=token, port=listener.getsockname()[1])}
        with http.posted(replicas.one, body, talk.headers) as connection, listener.accept()[0] as running:
            running.settimeout(DEADLINE_SECONDS)
            assert running.recv(100) == b"running"
            cancelled = talk.post(replicas.other, method="notifications/cancelled", params={"requestId": 5})
            assert cancelled.status_code == 202
            assert running.recv(100) in {b"cancelled", b""}
            with HTTPResponse(connection, method="POST") as response:
                response.begin()
                assert "Request cancelled" in response.read().decode()


def test_the_log_level_of_a_session_is_that_of_every_replica(replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    assert talk.post(replicas.one, method="logging/setLevel", id=1, params={"level": "error"}).status_code == 200
    assert logged(talk, replicas.one) == ["a failure"]
    assert logged(talk, replicas.other) == ["a failure"], "where it comes to life now"
    assert talk.post(replicas.other, method="logging/setLevel", id=2, params={"level": "info"}).status_code == 200
    assert logged(talk, replicas.one) == ["a detail", "a failure"], "where it is alive"
    assert talk.post(replicas.one, method="logging/setLevel", id=3, params={"level": "emergency"}).status_code == 200
    assert [logged(talk, url) for url in (replicas.one, replicas.other)] == [[], []]
    assert logged(Talk(replicas.one), replicas.other) == ["a detail", "a failure"], "another session hears all"


def test_a_client_that_says_too_much_of_itself_opens_no_session(replicas: Replicas) -> None:
    many: dict[str, Any] = {"experimental": {"x": {str(number): {} for number in range(10_000)}}}
    refused = httpx.post(replicas.one, json=http.initialize(many), headers=http.HEADERS, timeout=DEADLINE_SECONDS)
    assert refused.status_code == 413
    assert "may keep 262144" in refused.json()["error"]["message"]
    assert Talk(replicas.one).sum(replicas.other, 1, 2).status_code == 200


def test_a_session_that_gives_way_to_another_caller_goes_on_nowhere(
    redis: RedisServer, serving: Callable[..., str]
) -> None:
    apps = [http_app(Server(TOOLS, name="full"), redis_url=redis.url, auth=Names(), max_sessions=2) for _ in range(2)]
    one, other = (f"{serving(app)}/mcp" for app in apps)
    first, second = (Talk(one, authorization="Bearer ada") for _ in range(2))
    assert second.sum(one, 1, 2).status_code == 200
    assert Talk(one, authorization="Bearer bob").sum(one, 1, 2).status_code == 200
    assert first.sum(other, 1, 2).status_code == 404
    assert second.sum(other, 1, 2).status_code == 200
