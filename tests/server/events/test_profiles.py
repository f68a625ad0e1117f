"""Events of a profile end for a key that loses the profile's scope."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import httpx

from bridge import Server
from bridge.events.event_type import Feed
from bridge.protocol.versions import FORBIDDEN
from bridge.server import EventOptions
from bridge.server.auth import KeyFile
from bridge.server.http.app import http_app
from bridge.server.profiles import Profile
from tests.server import http_server as http
from tests.server.events.hooks import ADA, BOB, Client, number
from tests.server.events.receiver import receiving

if TYPE_CHECKING:
    from pathlib import Path


def test_streams_and_webhooks_end_when_a_key_loses_the_scope_of_their_profile(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"ada {ADA} scopes=ops\nbob {BOB} scopes=ops\n", encoding="utf-8")
    profile = Profile(name="default", scopes=frozenset({"ops"}))
    with receiving() as receiver:
        options = EventOptions(webhooks=True, callback_origins=(receiver.url,))
        server = Server([replace(number, feed=Feed())], name="hooks", events=options)
        app = http_app(server, auth=KeyFile(path, check_seconds=0.02), profiles=[profile])
        message = http.modern(http.request("events/stream", {"name": "number"}))
        headers = Client.headers("events/stream", ADA)
        with http.serving(app) as url:
            client = Client(url)
            begun = {key: client.subscribe(receiver.url, key)["id"] for key in (ADA, BOB)}
            with httpx.stream("POST", f"{url}/mcp", json=message, headers=headers, timeout=30) as stream:
                events = http.events(stream.iter_lines())
                assert next(events)["method"] == "notifications/events/active"
                path.write_text(f"ada {ADA} scopes=other\nbob {BOB} scopes=ops\n", encoding="utf-8")
                *_, terminated, result = events
            assert (terminated["method"], terminated["params"]["error"]["code"]) == (
                "notifications/events/terminated",
                FORBIDDEN,
            )
            assert "result" in result
            server.emit("number", {"value": 1})
            received = {each.headers["x-mcp-subscription-id"]: each.json for each in (receiver.next(), receiver.next())}
    assert (received[begun[ADA]]["type"], received[begun[BOB]]["data"]) == ("terminated", {"value": 1})
