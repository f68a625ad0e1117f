"""How many sessions there may be, and who gives way when there are no more."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Handshake, bearer, toolbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYS = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB))
ADD = http.call("add", {"a": 1, "b": 2})


@contextmanager
def callers(max_sessions: int) -> Iterator[tuple[httpx.Client, Callable[[str], Handshake]]]:
    app = http_app(toolbox(), auth=KEYS, max_sessions=max_sessions)
    with http.serving(app, http="direct") as origin, httpx.Client(timeout=20, base_url=origin) as client:
        yield client, lambda key: Handshake(client, origin, bearer(key))


def test_over_the_limit_a_session_is_refused_with_when_to_try_again() -> None:
    with callers(2) as (client, opened):
        sessions = [opened(ADA), opened(ADA)]
        refused = client.post("/mcp", json=http.initialize(), headers=http.HEADERS | bearer(ADA))
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "10"
        assert refused.json()["error"]["code"] == -32005
        assert refused.json()["error"]["data"] == {"limit": "--max-sessions", "retryAfterSeconds": 10}
        assert [each.send(ADD).status_code for each in sessions] == [200, 200]


def test_a_caller_who_takes_all_sessions_gives_way_to_another() -> None:
    with callers(3) as (_, opened):
        first, *others = [opened(ADA) for _ in range(3)]
        for each in others:
            each.send(ADD)
        bob = opened(BOB)
        assert bob.send(ADD).status_code == 200
        assert first.send(ADD).status_code == 404
        assert [each.send(ADD).status_code for each in others] == [200, 200]


def test_what_opens_no_session_takes_no_place() -> None:
    with callers(1) as (client, opened):
        for body in (http.request("tools/list"), http.notification("notifications/initialized")):
            assert client.post("/mcp", json=body, headers=http.HEADERS | bearer(ADA)).status_code == 400
        assert opened(ADA).send(ADD).status_code == 200


def test_a_session_that_was_ended_leaves_its_place() -> None:
    with callers(1) as (client, opened):
        ada = opened(ADA)
        client.delete("/mcp", headers=ada.headers | bearer(ADA)).raise_for_status()
        assert opened(ADA).send(ADD).status_code == 200


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_sessions must be at least 1, not 0"):
        http_app(toolbox(), max_sessions=0)
