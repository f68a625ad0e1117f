"""Messages of a connection, which a listener receives over each route and in both eras."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import Connection
from tests.client.conftest import DEADLINE_SECONDS
from tests.client.connection.test_connection import config_of

if TYPE_CHECKING:
    from tests.client.conftest import RemoteServer

pytestmark = pytest.mark.anyio

CASES = [("stdio", "legacy"), ("stdio", "2026-07-28"), ("http", "legacy"), ("http", "2026-07-28"), ("sse", "legacy")]


@pytest.mark.parametrize(("route", "pin"), CASES)
async def test_all_messages_are_reported_in_their_order(route: str, pin: Any, steady: RemoteServer) -> None:
    messages: list[tuple[str, Any]] = []
    connection = Connection(config_of(route, steady, protocol=pin))
    remove = connection.on_message(lambda direction, text: messages.append((direction, json.loads(text))))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connection:
            listing = await connection.list_tools()
            result = await connection.call_tool("add", {"a": 1, "b": 2})
            count = len(messages)
            remove()
            await connection.call_tool("add", {"a": 1, "b": 2})
    assert len(messages) == count
    first = "initialize" if pin == "legacy" else "server/discover"
    assert (messages[0][0], messages[0][1]["method"]) == ("sent", first)
    listed, called = (next(m for d, m in messages if m.get("method") == f"tools/{verb}") for verb in ("list", "call"))
    assert called["params"]["arguments"] == {"a": 1, "b": 2}
    answers = {message["id"]: message for direction, message in messages if direction == "received" and "id" in message}
    assert answers[called["id"]]["result"] == result
    names = [tool["name"] for tool in answers[listed["id"]]["result"]["tools"]]
    assert names == [tool["name"] for tool in listing.tools]
