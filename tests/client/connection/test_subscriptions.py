from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from starlette.responses import Response

from bridge.client import Connection, ReconnectPolicy
from bridge.client.connection import subscriptions
from tests.client.clock import Clock
from tests.client.endpoint import MODERN, endpoint

if TYPE_CHECKING:
    from bridge.types import Json

pytestmark = pytest.mark.anyio

KEY = "io.modelcontextprotocol/subscriptionId"


async def subscription_that_ends_at_once(message: Json) -> Response:
    """Return a stream that is acknowledged, then ended."""
    meta = {"_meta": {KEY: message["id"]}}
    begun = {"notifications": {"toolsListChanged": True}, **meta}
    frames = (
        {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": begun},
        {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **meta}},
    )
    text = "".join(f"event: message\ndata: {json.dumps(frame)}\n\n" for frame in frames)
    return Response(text, media_type="text/event-stream")


async def renewed_after(*delays: float, following: float) -> None:
    """Run subscriptions that all end at once; check the seconds waited between them, and after the last one."""
    clock = Clock()
    reconnect = ReconnectPolicy(wait=clock.wait, jitter=lambda: 1.0, first_delay_seconds=1.0)
    with endpoint(MODERN, subscriptions_listen=subscription_that_ends_at_once) as server:
        connection = Connection(server.config(), reconnect=reconnect)
        connection.on_list_changed("tools", lambda: None)
        async with connection:
            for delay in delays:
                await clock.elapse(delay)
            await clock.sleeping(following)
            assert server.seen.count("subscriptions/listen") == len(delays) + 1


async def test_subscriptions_that_end_at_once_are_renewed_ever_more_slowly() -> None:
    await renewed_after(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, following=64.0)


async def test_a_subscription_that_lasted_is_renewed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LASTING_SECONDS", 0.0)
    await renewed_after(1.0, 1.0, 1.0, following=1.0)
