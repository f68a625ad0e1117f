"""Discovery of servers: what a card may lead to, and the time that it may take."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from bridge.client import discovery
from bridge.client.discovery import discovered_servers
from bridge.errors import WireError
from bridge.wire.cards import CARD_TYPE

CARD: dict[str, Any] = {
    "name": "com.example/x",
    "remotes": [{"type": "streamable-http", "url": "http://127.0.0.1:1/mcp"}],
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, httpx2.Response]:
    """Answers of all hosts, by URL."""
    found: dict[str, httpx2.Response] = {}
    transport = httpx2.MockTransport(lambda request: found.get(str(request.url), httpx2.Response(404)))

    def client(**options: Any) -> httpx2.Client:
        options.pop("verify")
        return real(transport=transport, **options)

    real = httpx2.Client
    monkeypatch.setattr(httpx2, "Client", client)
    return found


def test_a_card_on_https_names_no_server_without_it(answers: dict[str, httpx2.Response]) -> None:
    answers["https://example.com/server-card"] = httpx2.Response(200, json=CARD)
    answers["http://example.com/server-card"] = httpx2.Response(200, json=CARD)
    with pytest.raises(WireError, match=r"'x' is on https, and its server is not"):
        discovered_servers("https://example.com/server-card")
    assert discovered_servers("http://example.com/server-card")["x"]["url"] == "http://127.0.0.1:1/mcp"


def test_a_secret_is_asked_for_in_the_name_of_the_host_that_served_the_card(
    answers: dict[str, httpx2.Response],
) -> None:
    header = {"name": "X-Key", "value": "{api_key}", "variables": {"api_key": {"isSecret": True}}}
    remote = {"type": "streamable-http", "url": "https://example.com/mcp", "headers": [header]}
    card = {"name": "com.good/api", "remotes": [remote]}
    answers["https://good.com/server-card"] = httpx2.Response(302, headers={"location": "https://evil.com/server-card"})
    answers["https://evil.com/server-card"] = httpx2.Response(200, json=card)
    catalog = {"entries": [{"type": CARD_TYPE, "data": card}]}
    answers["https://evil.com/.well-known/ai-catalog.json"] = httpx2.Response(200, json=catalog)
    for url in ("https://good.com/server-card", "https://evil.com"):
        headers = discovered_servers(url)["api"]["headers"]
        assert headers == {"X-Key": "${BRIDGE_CARD_EVIL_COM__API__API_KEY}"}


def test_a_catalogue_on_https_names_no_card_without_it(answers: dict[str, httpx2.Response]) -> None:
    entries = [{"type": CARD_TYPE, "url": "http://example.org/server-card"}]
    answers["https://example.com/.well-known/ai-catalog.json"] = httpx2.Response(200, json={"entries": entries})
    answers["http://example.org/server-card"] = httpx2.Response(200, json=CARD)
    with pytest.raises(WireError, match="catalogue is on https, and its card is not"):
        discovered_servers("https://example.com")


def test_a_redirect_does_not_lead_from_https_to_http(answers: dict[str, httpx2.Response]) -> None:
    location = {"location": "http://example.org/server-card"}
    answers["https://example.com/server-card"] = httpx2.Response(302, headers=location)
    answers[location["location"]] = httpx2.Response(200, json=CARD)
    with pytest.raises(WireError, match="redirects to an address without https"):
        discovered_servers("https://example.com/server-card")
    answers[location["location"]] = httpx2.Response(302, headers={"location": "https://example.net/server-card"})
    answers["https://example.net/server-card"] = httpx2.Response(200, json=CARD)
    with pytest.raises(WireError, match="redirects to an address without https"):
        discovered_servers("https://example.com/server-card")


def test_a_document_that_is_sent_slowly_is_given_up(
    answers: dict[str, httpx2.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 6))
    monkeypatch.setattr(discovery, "monotonic", lambda: next(clock))
    answers["https://example.com/server-card"] = httpx2.Response(200, content=iter([b"{"] * 100))
    with pytest.raises(WireError, match="takes longer than 10 seconds"):
        discovered_servers("https://example.com/server-card")


def test_a_catalogue_with_slow_cards_is_given_up(
    answers: dict[str, httpx2.Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 3))
    monkeypatch.setattr(discovery, "monotonic", lambda: next(clock))
    entries = [{"type": CARD_TYPE, "url": f"/{number}/server-card"} for number in range(50)]
    answers["https://example.com/.well-known/ai-catalog.json"] = httpx2.Response(200, json={"entries": entries})
    with pytest.raises(WireError, match="take longer than 30 seconds"):
        discovered_servers("https://example.com")


def test_each_card_of_a_catalogue_is_kept_or_said_to_be_missing(
    answers: dict[str, httpx2.Response], caplog: pytest.LogCaptureFixture
) -> None:
    cards = [CARD | {"name": name} for name in ("a.b/x-2", "a.b/x", "c.d/x")]
    entries: list[dict[str, Any]] = [*({"data": card} for card in cards), {"url": "/gone"}]
    catalog = {"entries": [{"type": CARD_TYPE, **each} for each in entries]}
    answers["http://example.com/.well-known/ai-catalog.json"] = httpx2.Response(200, json=catalog)
    assert list(discovered_servers("http://example.com")) == ["x-2", "x", "x-3"]
    assert "there is no card at 'http://example.com/gone'" in caplog.text
