"""Rates of several replicas over HTTP."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.limits import Limits, Rate
from bridge.server.server import Server
from tests.redis_server import redis_server
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, talking
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_server import RedisServer
    from tests.server.auth.guarded import Modern

KEYS = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB))
RATE = Rate(40, 4000)
INTERVAL_SECONDS = 100
"""Seconds to regain one call; none is regained during a test."""
CALL = http.call("add", {"a": 1, "b": 2})
META = "io.github.mcp-toolbridge/retryAfterSeconds"


class Callers:
    """A caller, and a replica."""

    def __init__(self, serving: Callable[..., str], redis_url: str) -> None:
        self._serving = serving
        self._redis_url = redis_url
        self.opened = ExitStack()

    def origin(self, name: str, limits: Limits, http_kind: str = "direct") -> str:
        app = http_app(Server(TOOLS, name=name, limits=limits), auth=KEYS, redis_url=self._redis_url)
        return self._serving(app, http=http_kind)

    def at(self, origin: str, key: str, kind: str = "modern") -> Modern:
        return self.opened.enter_context(talking(kind, origin, key))


@pytest.fixture
def callers(redis: RedisServer, serving: Callable[..., str]) -> Any:
    made = Callers(serving, redis.url)
    with made.opened:
        yield made


def refused_after(caller: Modern) -> tuple[int, int]:
    """Call until a call is refused; return the number of calls before it, and the seconds to wait."""
    for number in range(RATE.calls + 1):
        answer = caller.send(CALL)
        if answer.status_code == 429:
            return number, int(answer.headers["retry-after"])
        assert answer.status_code == 200
    raise AssertionError("it is not limited")


def waits_for(caller: Modern) -> int:
    return refused_after(caller)[1]


def tool_refused_after(caller: Modern) -> tuple[int, int]:
    """The same as `refused_after` for a limited tool."""
    for number in range(RATE.calls + 1):
        result = caller.ask(CALL)["result"]
        if result["isError"]:
            return number, result["_meta"][META]
    raise AssertionError("it is not limited")


def counts_others(refusal: tuple[int, int]) -> bool:
    """Return True if calls at another replica have counted: fewer are admitted, or those admitted exceed the rate."""
    number, seconds = refusal
    return number < RATE.calls or seconds > INTERVAL_SECONDS


@pytest.mark.parametrize("http_kind", ["direct", "httptools"])
def test_what_one_lets_in_is_counted_by_the_other_too(callers: Callers, http_kind: str) -> None:
    name = f"rates-{uuid4().hex}"
    one, other = (callers.origin(name, Limits(rate=RATE), http_kind) for _ in range(2))
    assert not counts_others(refused_after(callers.at(one, ADA)))
    at_the_other = callers.at(other, ADA)
    assert counts_others(refused_after(at_the_other))
    assert at_the_other.send(CALL).status_code == 429
    assert callers.at(other, BOB).send(CALL).status_code == 200
    elsewhere = callers.origin(f"rates-{uuid4().hex}", Limits(rate=RATE), http_kind)
    assert not counts_others(refused_after(callers.at(elsewhere, ADA)))


@pytest.mark.parametrize("kind", ["modern", "handshake"])
def test_what_one_runs_of_a_tool_is_counted_by_the_other_too(callers: Callers, kind: str) -> None:
    name, limits = f"rates-{uuid4().hex}", Limits(tool_rates={"a*": RATE})
    one, other = (callers.origin(name, limits) for _ in range(2))
    assert not counts_others(tool_refused_after(callers.at(one, ADA, kind)))
    assert counts_others(tool_refused_after(callers.at(other, ADA, kind)))
    assert not callers.at(other, BOB, kind).ask(CALL)["result"]["isError"]


def test_what_was_used_up_comes_back_for_all(callers: Callers) -> None:
    name, limits = f"rates-{uuid4().hex}", Limits(rate=Rate(4, 2))
    one, other = (callers.at(callers.origin(name, limits), ADA) for _ in range(2))
    for caller in (one, other, one, other):
        while caller.send(CALL).status_code != 429:
            pass
        while caller.send(CALL).status_code != 200:
            pass


def test_without_redis_each_counts_by_itself_and_tells_when_it_is_back(
    tmp_path: Path, serving: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with redis_server(tmp_path) as redis:
        callers = Callers(serving, redis.url)
        with callers.opened:
            one, other = (callers.at(callers.origin("outage", Limits(rate=RATE)), ADA) for _ in range(2))
            redis.end()
            assert waits_for(one) <= INTERVAL_SECONDS
            assert waits_for(other) <= INTERVAL_SECONDS
            redis.start()  # which has lost all
            for caller in (one, other):
                while waits_for(caller) <= (RATE.calls - 1) * INTERVAL_SECONDS:
                    pass  # it synchronizes as soon as it notices
            messages = [record.getMessage() for record in caplog.records]
            gone = [each for each in messages if "sessions of this replica continue" in each]
    assert len(gone) >= 2  # a command that failed late is an outage of its own
    assert all(said.endswith("and each replica counts rates alone") for said in gone)
