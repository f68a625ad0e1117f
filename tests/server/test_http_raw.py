"""Requests that no client library would send."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.server import http_app
from bridge.tools.toolbox import ToolBox
from tests.server.http_mutations import HANDSHAKE, META, modern, without_body
from tests.server.http_server import HEADERS, answer, initialize
from tests.server.raw_http import open_session, sent, taken
from tests.server.tools import ADD, GREET

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_SECONDS = 60

pytestmark = pytest.mark.anyio


@pytest.fixture
def port(serving: Callable[..., str], http: str) -> int:
    return int(serving(http_app(ToolBox([ADD, GREET])), http=http).rpartition(":")[2])


@pytest.fixture(params=["h11", "httptools"])
def http(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_a_stream_that_a_client_wants_to_resume_opens_anew(port: int, errors: Callable[[], list[str]]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        session = await open_session(port)
        headers = {"MCP_Protocol_Version": HANDSHAKE, "Mcp_Session_Id": session, "Last_Event_ID": "7"}
        async with sent(port, without_body("GET", "/mcp", **headers).raw, "GET") as stream:
            head = await stream.head()
    assert head is not None
    assert (head.status_code, dict(head.headers)[b"content-type"]) == (200, b"text/event-stream")
    assert errors() == []


@pytest.mark.parametrize("first_line", ["POST /mcp", "PUT /mcp", "GET /nowhere", "POST /messages/"])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
async def test_broken_chunks_are_refused_and_are_no_error_of_the_server(
    port: int, errors: Callable[[], list[str]], first_line: str, host: str
) -> None:
    raw = f"{first_line} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n"
    with anyio.fail_after(DEADLINE_SECONDS):
        async with sent(port, raw.encode()) as connection:
            head = await connection.head()
        assert head is not None
        assert 400 <= head.status_code < 500
        # Once the next request is answered, the effects of the first one are complete.
        await taken(port, modern("tools/list"))
    assert errors() == []


@pytest.mark.parametrize("capabilities", [5, "x", [1], [[{}]], {"extensions": 4}])
def test_capabilities_that_are_wrong_are_refused(port: int, capabilities: Any, errors: Callable[[], list[str]]) -> None:
    url = f"http://127.0.0.1:{port}/mcp"
    refusal = httpx.post(url, json=initialize(capabilities), headers=HEADERS, timeout=DEADLINE_SECONDS)
    assert (refusal.status_code, answer(refusal)["error"]["code"]) == (200, -32602)
    assert errors() == []


async def test_an_answer_that_comes_before_its_question_is_heard(port: int) -> None:
    can_ask = META | {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    answers = {"name": {"action": "accept", "content": {"name": "Ada"}}, "other": {"action": "cancel"}}
    with anyio.fail_after(DEADLINE_SECONDS):
        body = await taken(port, modern("tools/call", name="greet", inputResponses=answers, _meta=can_ask))
    assert json.loads(body)["result"]["content"] == [{"type": "text", "text": "Hello Ada"}]
