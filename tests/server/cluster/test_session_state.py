from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from redis import Redis

from bridge.server import http_app
from bridge.server.server import Server
from bridge.server.tasks.options import TaskOptions
from bridge.server.tasks.shared.redis_store import RedisTaskStore
from bridge.testing import TokenSigner
from bridge.tools.session import MAX_STATE_BYTES, MAX_STATE_KEYS
from tests.redis_server import redis_server
from tests.server.cluster.speaking import Replicas, Talk, call, message_in, text_of
from tests.server.state_tools import TOOLS
from tests.server.tasks.client import TaskClient
from tests.server.test_session_states import modern_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_server import RedisServer


@pytest.fixture
def signer() -> TokenSigner:
    return TokenSigner()


@pytest.fixture
def replicas(redis: RedisServer, serving: Callable[..., str], request: pytest.FixtureRequest) -> Replicas:
    name = request.node.name
    return Replicas(*(f"{serving(http_app(Server(TOOLS, name=name), redis_url=redis.url))}/mcp" for _ in range(2)))


def text(talk: Talk, url: str, name: str, **arguments: Any) -> str:
    return text_of(message_in(talk.post(url, id=1, **call(name, **arguments))))


def states(redis: RedisServer, talk: Talk) -> list[bytes]:
    """Return the keys of the state of a session."""
    with Redis.from_url(redis.url) as client:
        return list(client.scan_iter(f"*:state:{talk.headers['mcp-session-id']}"))


def test_replicas_share_the_state_of_a_session(replicas: Replicas) -> None:
    talk, stranger = Talk(replicas.one), Talk(replicas.other)
    urls = [replicas.one, replicas.other, replicas.one]
    assert [text(talk, url, "count_in_thread") for url in urls] == ["1", "2", "3"]
    assert text(stranger, replicas.one, "count_in_thread") == "1"
    assert text(talk, replicas.other, "forget") == "none"
    assert text(talk, replicas.one, "count_in_thread") == "1"


def test_the_state_is_gone_with_the_session(replicas: Replicas, redis: RedisServer) -> None:
    talk = Talk(replicas.one)
    assert text(talk, replicas.other, "count_in_thread") == "1"
    assert states(redis, talk)
    assert talk.end(replicas.other) == 200
    assert not states(redis, talk)


def test_replicas_share_the_state_of_a_caller(
    redis: RedisServer, serving: Callable[..., str], signer: TokenSigner
) -> None:
    apps = [http_app(Server(TOOLS, name="callers"), redis_url=redis.url, auth=signer.verifier) for _ in range(2)]
    one, other = (f"{serving(app)}/mcp" for app in apps)
    ada, bob = signer.token("ada"), signer.token("bob")
    with httpx.Client(timeout=30) as client:
        calls = [(one, ada), (other, ada), (other, bob), (one, ada)]
        found = [modern_count(client, url, token) for url, token in calls]
    assert [each["structuredContent"]["count"] for each in found] == [1, 2, 1, 3]


@pytest.mark.parametrize(
    ("keys", "length", "is_kept"),
    [
        (MAX_STATE_KEYS, 1, True),
        (MAX_STATE_KEYS + 1, 1, False),
        (1, MAX_STATE_BYTES - 10, True),
        (1, MAX_STATE_BYTES, False),
    ],
)
def test_a_shared_session_has_so_many_keys_and_bytes(replicas: Replicas, keys: int, length: int, is_kept: bool) -> None:
    talk = Talk(replicas.one)
    expected = "filled" if is_kept else "a session keeps at most 128 values"
    assert text(talk, replicas.other, "fill", keys=keys, length=length).startswith(expected)
    assert text(talk, replicas.one, "fill", keys=min(keys, 100), length=1) == "filled"


def test_a_task_that_another_process_runs_has_the_state_of_its_caller(
    redis: RedisServer, serving: Callable[..., str], signer: TokenSigner
) -> None:
    def served(max_running: int) -> str:
        server = Server(
            TOOLS, name="tasks", tasks=TaskOptions(store=RedisTaskStore(redis.url), max_running=max_running)
        )
        return serving(http_app(server, redis_url=redis.url, auth=signer.verifier))

    web, ada = served(0), signer.token("ada")
    with httpx.Client(timeout=30) as http:
        assert modern_count(http, f"{web}/mcp", ada)["structuredContent"]["count"] == 1
        with TaskClient(web, ada) as client:
            task_id = client.created("count_as_task")
            served(1)
            assert client.settled(task_id)["result"]["structuredContent"] == {"result": 2}
        assert modern_count(http, f"{web}/mcp", ada)["structuredContent"]["count"] == 3


def test_the_state_cannot_be_reached_while_redis_is_unavailable_and_the_tool_says_so(
    tmp_path: Path, serving: Callable[..., str]
) -> None:
    with redis_server(tmp_path) as own:
        url = f"{serving(http_app(Server(TOOLS, name='away'), redis_url=own.url))}/mcp"
        talk = Talk(url)
        assert text(talk, url, "count_in_thread") == "1"
        own.end()
        assert text(talk, url, "count_in_thread") == "the state of the session cannot be reached now; try again"
        own.start()
        while (found := text(talk, url, "count_in_thread")) != "1":  # Redis was empty
            assert found == "the state of the session cannot be reached now; try again"
        assert text(talk, url, "count_in_thread") == "2"
