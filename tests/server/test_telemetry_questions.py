"""Telemetry of questions that tools ask their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult, ErrorData

from bridge.server.http.app import http_app
from bridge.telemetry.conventions import CLIENT_OPERATION_DURATION, SERVER_OPERATION_DURATION
from bridge.telemetry.current import enabled
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import serving
from tests.server.test_observed import PARENT_ID, TRACE_ID, TRACED, Watched
from tests.server.tools import GREET

if TYPE_CHECKING:
    from typing import Any

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

pytestmark = pytest.mark.anyio

TCP = {"network.transport": "tcp", "network.protocol.name": "http"}
ASKED = {"mcp.method.name": "elicitation/create", "mcp.protocol.version": "2025-11-25"} | TCP


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_question_that_a_client_cannot_be_asked_is_a_failure_of_its_call() -> None:
    watched = Watched()
    with enabled(watched.observer), serving(http_app(ToolBox(GREET))) as origin:
        async with Client(f"{origin}/mcp", mode="2026-07-28") as client:
            with pytest.raises(MCPError, match="capability"):
                await client.call_tool("greet", {})
    assert [record["error"] for record in watched.records] == ["-32021"]


async def greeted(mode: Any, answer: ElicitResult | ErrorData) -> tuple[Watched, list[Any]]:
    """Call a tool that asks a question; return the records, and what arrived with the question."""
    metas: list[Any] = []

    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        metas.append(params.meta)
        return answer

    watched = Watched()
    with enabled(watched.observer):
        app = http_app(ToolBox(GREET))
        with serving(app) as origin:
            async with Client(f"{origin}/mcp", mode=mode, elicitation_callback=elicit) as client:
                await client.call_tool("greet", {}, meta=TRACED)  # type: ignore[arg-type]  # any key may stand there
    return watched, metas


async def test_a_question_that_is_a_request_is_counted_and_belongs_to_the_trace_of_its_call() -> None:
    watched, ((meta,)) = await greeted("legacy", ElicitResult(action="accept", content={"name": "Ada"}))
    assert watched.counts(CLIENT_OPERATION_DURATION) == [(ASKED, 1)]
    (call,) = (span for span in watched.finished if span.name == "tools/call greet")
    (question,) = (span for span in watched.finished if span.name == "elicitation/create")
    assert (question.kind.name, question.status.status_code.name) == ("CLIENT", "UNSET")
    assert question.parent == call.context
    assert question.context is not None
    assert meta["traceparent"] == f"00-{TRACE_ID}-{question.context.span_id:016x}-01"
    assert [record["outcome"] for record in watched.records] == ["ok"]


async def test_a_client_that_does_not_answer_a_question_is_a_failure_of_it() -> None:
    watched, _ = await greeted("legacy", ErrorData(code=-32603, message="not now"))
    failure = {"error.type": "-32603", "rpc.response.status_code": "-32603"}
    assert watched.counts(CLIENT_OPERATION_DURATION) == [(ASKED | failure, 1)]


async def test_a_call_that_ends_by_asking_is_told_as_one_and_is_no_failure() -> None:
    watched, _ = await greeted("2026-07-28", ElicitResult(action="accept", content={"name": "Ada"}))
    asking, answered = watched.records
    assert (asking["outcome"], answered["outcome"]) == ("input_required", "ok")
    assert "error" not in asking
    same = ("event", "tool", "caller", "transport", "arguments", "trace_id")
    assert {key: asking[key] for key in same if key in asking} == {
        key: answered[key] for key in same if key in answered
    }
    calls = [count for labels, count in watched.counts(SERVER_OPERATION_DURATION) if "gen_ai.tool.name" in labels]
    assert calls == [2]  # in one series: neither has an error type
    spans = [span for span in watched.spans if span[0] == "tools/call greet"]
    assert [(status, parent) for _, status, parent, _ in spans] == [("UNSET", PARENT_ID)] * 2
    assert watched.counts(CLIENT_OPERATION_DURATION) == []
