from __future__ import annotations

from typing import Any

import httpx
import pytest

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.limits.shares import Shares
from bridge.server.methods import subscriptions
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, bearer
from tests.server.tools import ADD

LISTEN = http.modern(http.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))


def taken(shares: Shares, caller: str) -> int:
    count = 0
    while shares.has_room(caller):
        shares.take(caller)
        count += 1
    return count


def test_who_takes_all_that_it_gets_leaves_as_much_to_others() -> None:
    shares = Shares(100)
    assert [taken(shares, caller) for caller in ("ada", "bob", "cy")] == [50, 25, 13]
    shares.give_back("ada", 50)
    assert (shares.taken, taken(shares, "dan")) == (38, 31)


def test_one_place_is_for_whoever_comes_first_and_the_only_caller_has_all() -> None:
    assert taken(Shares(1), "ada") == 1
    assert taken(Shares(0), "ada") == 0
    assert taken(Shares(100), "") == 100


def test_places_are_free_again_where_what_took_them_fails() -> None:
    shares = Shares(10)

    def fail() -> None:
        with shares.taking("ada", 5):
            assert not shares.has_room("ada")
            assert shares.has_room("bob", 5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert shares.taken == 0


def test_subscriptions_of_one_caller_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 4)
    app = http_app(ToolBox(ADD), auth=ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB)))
    with httpx.Client(timeout=20) as client, http.serving(app) as origin:
        streams = []

        def listening(key: str) -> dict[str, Any]:
            headers = http.modern_headers(LISTEN) | bearer(key)
            request = client.build_request("POST", f"{origin}/mcp", json=LISTEN, headers=headers)
            response = client.send(request, stream=True)
            if response.headers["content-type"] == "application/json":
                response.read()
                return http.answer(response)
            streams.append((response, http.events(response.iter_lines())))
            return next(streams[-1][1])

        said = [listening(ADA) for _ in range(3)]
        assert ["method" in each for each in said] == [True, True, False]
        refused = said[-1]["error"]
        assert (refused["code"], refused["data"]) == (-32005, {"retryAfterSeconds": 10})
        assert "method" in listening(BOB)
        streams[0][0].close()
        while "method" not in listening(ADA):  # the server soon notices that the first has disconnected
            pass
        for response, _ in streams:
            response.close()


def test_a_subscription_to_more_than_may_be_kept_is_refused() -> None:
    uris = [f"file:///{number}" for number in range(2000)]
    message = http.modern(http.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}))
    with http.serving(http_app(ToolBox(ADD))) as origin:
        refused = httpx.post(f"{origin}/mcp", json=message, headers=http.modern_headers(message), timeout=20)
        assert refused.json()["error"]["code"] == -32602
        assert "a subscription may take 262144 bytes" in refused.json()["error"]["message"]
