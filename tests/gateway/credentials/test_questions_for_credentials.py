"""Callers are asked for a credential in the form of their protocol era, and their calls go on."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.gateway.credentials.connected import ADA, BOB, URL_ELICITATION, Connected, Reached, connected
from tests.server.http_server import HEADERS, call, initialize, modern, modern_headers, notification, open_session

if TYPE_CHECKING:
    import httpx

ACCEPT = {"action": "accept"}


def modern_call(program: httpx.Client, tool: str = "notes_show", **params: Any) -> Any:
    """Call a tool in the modern era; return the response."""
    message = modern(call(tool, **params), URL_ELICITATION)
    return program.post("/mcp", json=message, headers=modern_headers(message)).json()


def asked_url(answer: Any) -> str:
    """Return the link in a result of the modern era."""
    ((_, asked),) = answer["result"]["inputRequests"].items()
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["mode"] == "url"
    return str(asked["params"]["url"])


def connect(gateway: Reached, url: str, key: str = ADA, secret: str = "sesame") -> str:
    """Give a key on the page of a link; return the text of the last page."""
    browser = gateway.visitor()
    browser.open(url)
    browser.sign_in(key)
    return browser.send(f"/{url.rpartition('/')[2]}", secret=secret).text


def again(answer: Any, response: Any = ACCEPT) -> dict[str, Any]:
    """Return the parameters of the next round."""
    result = answer["result"]
    return {
        "inputResponses": dict.fromkeys(result["inputRequests"], response),
        "requestState": result["requestState"],
    }


def test_a_modern_call_asks_by_url_and_goes_on_with_the_credential(gateway: Connected) -> None:
    with gateway.program() as program:
        asked = modern_call(program)
        assert asked["result"]["resultType"] == "input_required"
        assert "notes.example.com" in str(asked["result"]["inputRequests"])
        assert "notes is connected" in connect(gateway, asked_url(asked))
        done = modern_call(program, **again(asked))
    assert done["result"]["content"] == [{"type": "text", "text": "ada has sesame"}]


def test_a_modern_call_waits_for_a_credential_that_is_given_after_its_retry(gateway: Connected) -> None:
    with gateway.program() as program:
        asked = modern_call(program)
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.append(modern_call(program, **again(asked))))
        waiting.start()
        connect(gateway, asked_url(asked))
        waiting.join(20)
    assert answers[0]["result"]["content"][0]["text"] == "ada has sesame"


def test_a_modern_call_is_asked_again_with_the_same_link_if_nobody_comes() -> None:
    with connected(wait_seconds=0.01) as gateway, gateway.program() as program:
        first = modern_call(program)
        second = modern_call(program, **again(first))
        assert second["result"]["resultType"] == "input_required"
        assert asked_url(second) == asked_url(first)
        connect(gateway, asked_url(second))
        done = modern_call(program, **again(second))
    assert done["result"]["content"][0]["text"] == "ada has sesame"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_modern_call_whose_caller_does_not_open_the_link_fails_without_running(
    gateway: Connected, action: str
) -> None:
    calls = gateway.upstreams["notes"].calls
    with gateway.program() as program:
        refused = modern_call(program, **again(modern_call(program), {"action": action}))
    assert refused["result"]["isError"] is True
    assert "you did not open the link" in refused["result"]["content"][0]["text"]
    assert gateway.upstreams["notes"].calls == calls


def test_a_refused_credential_is_asked_for_again(gateway: Connected) -> None:
    with gateway.program() as program:
        connect(gateway, asked_url(modern_call(program)), secret="worn")
        gateway.upstreams["notes"].refused = {"worn"}
        asked = modern_call(program)
        assert "refused your last one" in str(asked["result"]["inputRequests"])
        connect(gateway, asked_url(asked), secret="fresh")
        done = modern_call(program, **again(asked))
    assert done["result"]["content"][0]["text"] == "ada has fresh"


def test_a_state_of_another_caller_is_refused(gateway: Connected) -> None:
    with gateway.program() as ada, gateway.program(BOB) as bob:
        refused = modern_call(bob, **again(modern_call(ada)))
    assert "requestState" in refused["error"]["message"]


def test_a_call_of_2025_11_25_is_refused_with_the_link_until_the_caller_has_connected(gateway: Connected) -> None:
    with gateway.program() as program:
        headers = open_session(program, "/mcp", URL_ELICITATION)
        refused = program.post("/mcp", json=call("notes_show"), headers=headers)
        error = refused.json()["error"]
        assert error["code"] == -32042
        (asked,) = error["data"]["elicitations"]
        assert asked.keys() == {"mode", "message", "url", "elicitationId"}
        assert asked["elicitationId"] not in asked["url"]
        assert asked["url"].rpartition("/")[2] not in asked["elicitationId"]
        connect(gateway, asked["url"])
        done = program.post("/mcp", json=call("notes_show"), headers=headers)
    assert json.loads(done.text)["result"]["content"][0]["text"] == "ada has sesame"


def test_a_session_is_notified_of_the_completion_of_its_elicitation(gateway: Connected) -> None:
    with gateway.program() as program, gateway.program() as other:
        headers = open_session(program, "/mcp", URL_ELICITATION)
        unasked = open_session(other, "/mcp", URL_ELICITATION)
        (asked,) = program.post("/mcp", json=call("notes_show"), headers=headers).json()["error"]["data"][
            "elicitations"
        ]
        with program.stream("GET", "/mcp", headers=headers) as stream:
            connect(gateway, asked["url"])
            lines = (line for line in stream.iter_lines() if line.startswith("data: {"))
            notified = json.loads(next(lines).removeprefix("data: "))
        assert notified["method"] == "notifications/elicitation/complete"
        assert notified["params"] == {"elicitationId": asked["elicitationId"]}
        # The session of another client of the same caller gets its own next message, and not this one.
        (asked,) = other.post("/mcp", json=call("drive_show"), headers=unasked).json()["error"]["data"]["elicitations"]
        with other.stream("GET", "/mcp", headers=unasked) as stream:
            browser = gateway.visitor()
            browser.open(asked["url"])
            browser.sign_in()
            browser.send(f"/{asked['url'].rpartition('/')[2]}")
            state = gateway.drive.started[-1]["state"]
            browser.open(f"/connect/callback/drive?state={state}&code=1&iss={gateway.drive.origin}")
            lines = (line for line in stream.iter_lines() if line.startswith("data: {"))
            assert json.loads(next(lines).removeprefix("data: "))["params"] == {"elicitationId": asked["elicitationId"]}


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2024-11-05"])
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}], ids=["nothing", "forms"])
def test_a_client_without_url_elicitation_gets_the_link_in_words(
    gateway: Connected, version: str, capabilities: dict[str, Any]
) -> None:
    message = initialize(capabilities)
    message["params"]["protocolVersion"] = version
    with gateway.program() as program:
        opened = program.post("/mcp", json=message, headers=HEADERS)
        headers = HEADERS | {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": version}
        program.post("/mcp", json=notification("notifications/initialized"), headers=headers)
        result = program.post("/mcp", json=call("notes_show"), headers=headers).json()["result"]
        assert result["isError"] is True
        text = result["content"][0]["text"]
        (url,) = [word for word in text.split() if word.startswith("http://127.0.0.1")]
        assert "open this link in a browser, and then repeat this request" in text
        connect(gateway, url)
        done = program.post("/mcp", json=call("notes_show"), headers=headers).json()["result"]
    assert done["content"][0]["text"] == "ada has sesame"


def test_a_modern_client_without_url_elicitation_gets_the_link_in_words(gateway: Connected) -> None:
    message = modern(call("notes_show"), {"elicitation": {"form": {}}})
    with gateway.program() as program:
        result = program.post("/mcp", json=message, headers=modern_headers(message)).json()["result"]
    assert result["isError"] is True
    assert "/connect/link/" in result["content"][0]["text"]


def test_a_link_contains_nothing_but_an_unguessable_token(gateway: Connected) -> None:
    with gateway.program() as program:
        parts = urlsplit(asked_url(modern_call(program)))
    assert parts.path.startswith("/connect/link/")
    assert len(parts.path.rpartition("/")[2]) == 43  # 32 random bytes
    assert parts.query == parts.fragment == ""


def test_the_public_url_begins_links(tmp_path: Any) -> None:
    with connected(public_url="https://gateway.example.com/tools") as gateway, gateway.program() as program:
        url = asked_url(modern_call(program))
    assert url.startswith("https://gateway.example.com/tools/connect/link/")


def test_a_gateway_that_does_not_know_its_url_says_so() -> None:
    with connected(allowed_hosts=["gateway.example.com"]) as gateway, gateway.program() as program:
        message = modern(call("notes_show"), URL_ELICITATION)
        headers = modern_headers(message) | {"host": "gateway.example.com"}
        result = program.post("/mcp", json=message, headers=headers).json()["result"]
    assert "--public-url" in result["content"][0]["text"]
