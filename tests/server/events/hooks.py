"""A server with webhooks over HTTP, and its client."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx

from bridge import Server
from bridge.events import EventType, event
from bridge.events.event_type import Feed
from bridge.server import EventOptions, TaskOptions
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.http.app import http_app
from tests.server.events.receiver import new_secret
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.types import Json

ADA, BOB, CAROL, EVE = (f"{name}-{name}-{name}-{name}-{name}" for name in ("ada", "bob", "carol", "eve"))
KEYS = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB), ApiKey("eve", EVE, tools=("other",)))
SECRET = new_secret()
_ids = itertools.count(1)


@event("number")
async def number(payload: dict[str, int], least: int = 0) -> bool:
    """A number has come."""
    return payload["value"] >= least


OTHER = EventType(name="other")


class Client:
    """Sends requests of the modern era, each with a credential."""

    def __init__(self, url: str, path: str = "/mcp") -> None:
        self.url = url
        self.path = path

    @staticmethod
    def headers(method: str, key: str | None) -> dict[str, str]:
        """Return the headers of a request."""
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        return headers if key is None else headers | {"authorization": f"Bearer {key}"}

    def ask(self, method: str, params: Json, key: str | None = ADA) -> Json:
        """Return the result or the error."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": {**params, "_meta": meta}}
        answer: Json = httpx.post(
            f"{self.url}{self.path}", json=message, headers=self.headers(method, key), timeout=30
        ).json()
        return answer.get("result") or {"code": answer["error"]["code"], **answer["error"]}

    def subscribe(self, url: str, key: str | None = ADA, secret: str = SECRET, **more: Any) -> Json:
        """Subscribe to numbers."""
        delivery = {"mode": "webhook", "url": url, "secret": secret}
        return self.ask("events/subscribe", {"name": "number", "delivery": delivery, **more}, key)

    def unsubscribe(self, url: str, key: str | None = ADA, **more: Any) -> Json:
        """End a subscription to numbers."""
        return self.ask("events/unsubscribe", {"name": "number", "delivery": {"url": url}, **more}, key)


@contextmanager
def served(
    *origins: str, auth: Any = KEYS, store: Any = None, redis_url: str | None = None, types: Any = None, **options: Any
) -> Iterator[tuple[Client, Server]]:
    """Serve events over HTTP."""
    events = EventOptions(webhooks=True, callback_origins=origins, retry_seconds=0.002, **options)
    types = types or [replace(number, feed=Feed()), OTHER]  # as another process has it
    server = Server(types, name="hooks", events=events, tasks=TaskOptions(store=store))
    with serving(http_app(server, auth=auth, redis_url=redis_url)) as url:
        yield Client(url), server
