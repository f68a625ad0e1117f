from __future__ import annotations

import json
from contextlib import ExitStack

import httpx
import pytest

from bridge.server import http_app
from bridge.server.methods import subscriptions
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.tools import ADD

LISTEN = http.modern(http.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))


def test_subscriptions_are_ended_by_their_results_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 3)
    headers = http.modern_headers(LISTEN)
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=20))
        with http.serving(http_app(ToolBox(ADD))) as origin:
            url = f"{origin}/mcp"
            one = stack.enter_context(client.stream("POST", url, json=LISTEN, headers=headers))
            said = http.events(one.iter_lines())
            assert next(said)["method"] == "notifications/subscriptions/acknowledged"
            with client.stream("POST", url, json=LISTEN | {"id": 2}, headers=headers) as two:
                others = http.events(two.iter_lines())
                assert next(others)["method"] == "notifications/subscriptions/acknowledged"
                refused = http.answer(client.post(url, json=LISTEN | {"id": 3}, headers=headers))
                assert refused["error"]["message"].startswith("too many subscriptions: a caller may open as many as")
        (result,) = said
        assert result["id"] == 1
        assert result["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1


@pytest.mark.parametrize(
    "params", [{"resourceSubscriptions": ["\ud800"]}, {"toolsListChanged": True, "\ud800": "\ud800"}]
)
def test_a_subscription_with_a_lone_surrogate_logs_nothing(
    params: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    message = http.modern(http.request("subscriptions/listen", {"notifications": params}))
    with (
        http.serving(http_app(ToolBox(ADD))) as origin,
        httpx.stream(
            "POST", f"{origin}/mcp", content=json.dumps(message), headers=http.modern_headers(message), timeout=20
        ) as stream,
    ):
        assert stream.status_code in {200, 400}
    assert caplog.records == []
