from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http.app import http_app
from bridge.server.limits import Limits, Rate
from bridge.server.server import Server
from bridge.telemetry.conventions import REFUSALS, SERVER_OPERATION_DURATION
from bridge.telemetry.current import enabled
from tests.server.auth.guarded import ADA, bearer, talking, toolbox
from tests.server.http_server import call, serving
from tests.server.test_observed import PARENT_ID, TRACED, Watched

if TYPE_CHECKING:
    from typing import Any

MESSAGE = {"content-type": "application/json"}
TCP = {"network.transport": "tcp", "network.protocol.name": "http"}
CALL = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "delete_all"}


@pytest.mark.parametrize(
    ("kind", "transport", "spoken"),
    [
        ("modern", "http", {"mcp.protocol.version": "2026-07-28"}),
        ("handshake", "http", {"mcp.protocol.version": "2025-11-25"}),
        ("sse", "sse", {}),
    ],
)
def test_a_call_whose_scope_is_missing_is_counted_traced_and_recorded_too(
    kind: str, transport: str, spoken: dict[str, Any]
) -> None:
    watched = Watched()
    keys = ApiKeys(ApiKey("ada", ADA, scopes=frozenset({"read"})))
    with enabled(watched.observer):
        app = http_app(toolbox(), auth=Auth(keys, tool_scopes={"delete_*": ["write"]}))
        with serving(app) as origin, talking(kind, origin, ADA) as peer:
            asked = call("delete_all", {"secret": "hunter2"}, _meta=TRACED)
            assert peer.send(asked).status_code == 403
            peer.ask(call("add", {"a": 1, "b": 2}))
    record, another = watched.records
    assert (another["tool"], another["transport"], another["outcome"]) == ("add", transport, "ok")
    told = {key: record[key] for key in ("tool", "caller", "transport", "outcome", "error", "arguments")}
    assert told == {
        "tool": "delete_all",
        "caller": "ada",
        "transport": transport,
        "outcome": "error",
        "error": "insufficient_scope",
        "arguments": {"secret": "[redacted]"},
    }
    labels = CALL | TCP | spoken | {"error.type": "insufficient_scope"}
    assert (labels, 1) in watched.counts(SERVER_OPERATION_DURATION)
    (span,) = (span for span in watched.spans if span[0] == "tools/call delete_all")
    assert span[1:3] == ("ERROR", PARENT_ID)


@pytest.mark.parametrize("http", ["h11", "direct"])
def test_what_is_refused_before_it_is_a_request_of_mcp_is_counted_by_status(http: str) -> None:
    watched = Watched()
    keys, limits = ApiKeys(ApiKey("ada", ADA)), Limits(rate=Rate(3, 3600.0))
    with enabled(watched.observer):
        app = http_app(Server(toolbox(), name="bridge", limits=limits), auth=Auth(keys), max_request_bytes=1000)
        with serving(app, http=http) as origin, httpx.Client() as client:
            statuses = [
                client.post(f"{origin}/mcp", content=content, headers=MESSAGE | headers).status_code
                for content, headers in (
                    (b"{}", {}),
                    (b"{}", {"host": "elsewhere.example"}),
                    (b"{}", {"origin": "https://elsewhere.example"}),
                    (b"{}", bearer(ADA) | {"content-type": "text/plain"}),
                    (b" " * 1001, bearer(ADA)),
                    (b"[]", bearer(ADA)),
                    (b"{}", bearer(ADA)),
                )
            ]
    assert statuses == [401, 421, 403, 415, 413, 400, 429]
    assert watched.measured.values(REFUSALS, "http.response.status_code") == {str(status): 1 for status in statuses}
    assert watched.counts(SERVER_OPERATION_DURATION) == []


def test_what_is_answered_is_no_refusal() -> None:
    watched = Watched()
    with enabled(watched.observer):
        app = http_app(toolbox())
        with serving(app) as origin, talking("modern", origin, ADA) as peer:
            peer.ask(call("add", {"a": 1, "b": 2}))
            peer.ask(call("nothing"))
    assert watched.measured.values(REFUSALS, "http.response.status_code") == {}
