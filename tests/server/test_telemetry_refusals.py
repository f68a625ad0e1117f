from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http import http_app
from bridge.telemetry.conventions import SERVER_OPERATION_DURATION
from bridge.telemetry.switch import switched_on
from tests.server.auth.guarded import ADA, talking, toolbox
from tests.server.http_server import call, serving
from tests.server.test_telemetry_paths import PARENT_ID, TRACED, Watched

if TYPE_CHECKING:
    from typing import Any

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
    with switched_on(watched.observer):
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
