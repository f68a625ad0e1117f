"""Responses over stdio that cannot be parsed: their calls fail at once, and the connection stays open."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from bridge.client.transports import stdio_lines
from bridge.client.transports.stdio_lines import looks_like_response, response_id
from bridge.errors import ServerRefusedError
from tests.client.conftest import DEADLINE_SECONDS, opened, python_config

CHILD = r"""
import json, sys

DEEP = "[" * 1000 + "]" * 1000
LONG = "x" * 5 * 2**20
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    id, method = message["id"], message["method"]
    told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    head, result = f'"jsonrpc":"2.0","id":{id}', json.dumps(told if method == "initialize" else {"content": []})
    spoiled = {
        "surrogate": '{%s,"result":{"content":[{"type":"text","text":"\\ud800"}]}}' % head,
        "deep": '{%s,"result":{"content":[],"structuredContent":{"a":%s}}}' % (head, DEEP),
        "last": '{"result":{"content":[{"type":"text","text":"\\ud800"}]},%s}' % head,
        "only": '{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"\\ud800"}]},"id":%s}' % id,
        "spaced": '{ "id": %s, "jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "\\udfff"}]} }' % id,
        "cut": '{%s,"result":{"content":[' % head,
        "long": '{%s,"result":{"content":[{"type":"text","text":"%s"}]}}' % (head, LONG),
        "long last": '{"result":{"content":[{"type":"text","text":"%s"}]},%s}' % (LONG, head),
    }
    name = message.get("params", {}).get("name")
    print('{"jsonrpc":"2.0","id":99999,"result":"\\ud800"}' if name == "other" else "", flush=True)
    print(spoiled.get(name) or "{%s,\"result\":%s}" % (head, result), flush=True)
"""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["surrogate", "deep", "last", "only", "spaced", "cut"])
async def test_a_call_whose_response_is_unreadable_fails_at_once(name: str) -> None:
    config = python_config(CHILD, protocol="legacy", timeout_seconds=600, max_call_seconds=600)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with opened(config) as connection:
            with pytest.raises(ServerRefusedError, match=r"its response is unreadable: .+ \(-32700\)") as caught:
                await connection.call_tool(name, {})
            assert "content" not in caught.value.failure.reason
            assert (await connection.call_tool("good", {}))["content"] == []


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["long", "long last"])
async def test_a_call_whose_response_is_too_long_fails_and_the_connection_stays(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio_lines, "MAX_MESSAGE_BYTES", 2**20)
    config = python_config(CHILD, protocol="legacy", timeout_seconds=600, max_call_seconds=600)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with opened(config) as connection:
            for _ in range(2):
                with pytest.raises(ServerRefusedError) as caught:
                    await connection.call_tool(name, {})
                assert caught.value.failure.reason == "its response is unreadable: longer than 1 MiB (-32700)"
                assert (await connection.call_tool("good", {}))["content"] == []
            assert connection.status().connects == 1


@pytest.mark.anyio
async def test_an_unreadable_response_to_nobody_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with opened(python_config(CHILD, protocol="legacy")) as connection:
            assert (await connection.call_tool("other", {}))["content"] == []
    assert "(on standard output, unreadable as a message: " in caplog.text


@pytest.mark.parametrize(
    ("line", "waiting", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":', {3, 4}, 3),
        (b'{"jsonrpc":"2.0","id":"3","error":', {3, 4}, 3),
        (b'{"id":3,"jsonrpc":"2.0","result":', {3, 4}, 3),
        (b'{"result":{"id":4,},"jsonrpc":"2.0","id":3}', {3, 4}, 3),
        (b'{"result":{,},"id":3,"jsonrpc":"2.0"} ', {3, 4}, 3),
        (b'{"jsonrpc":"2.0","id":5,"result":', {3}, None),
        (b'{"jsonrpc":"2.0","result":{"id":4}', {3, 4}, None),
        (b'{"jsonrpc":"2.0","result":{"id":4}', {3}, 3),
        (b'{"jsonrpc":"2.0","result":', set(), None),
    ],
)
def test_the_request_of_an_unreadable_response_is_found(line: bytes, waiting: set[int], expected: int | None) -> None:
    assert looks_like_response(line)
    assert response_id(line, waiting) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"starting with result: 5",
        b'{"level":"info","id":3,"result":1}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"id":3,"result":',
        b'{"jsonrpc":"2.0","id":3,"method":"ping","result":',
    ],
)
def test_other_lines_are_no_responses(line: bytes) -> None:
    assert not looks_like_response(line)
