"""Subscriptions to resources follow the changes of the server, and the permissions of their caller."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge import InvocationContext, ResourceBox, prompt, resource, tool
from bridge.server import Features, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, KeyFile
from tests.server import http_server as http

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "part-part-part-part-part"
DEADLINE_SECONDS = 60
EVERY_KIND = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def note(context: InvocationContext) -> str:
    """Log."""
    await context.log("error", "noted")
    return "done"


@resource("public://plan")
def public_plan() -> str:
    """A plan."""
    return "open"


@resource("public://{number}")
def public_number(number: int) -> int:
    """A number."""
    return number


@resource("paid://plan")
def public_paid() -> str:
    """A plan that needs a scope."""
    return "paid"


@resource("secret://plan")
def secret_plan() -> str:
    """A plan that the key does not see."""
    return "secret"


@prompt
def public_greeting() -> str:
    """Greet."""
    return "Hello"


def keyed(*names: str) -> Auth:
    return Auth(ApiKeys(ApiKey("part", KEY, tools=names, scopes=frozenset())), tool_scopes={"public_paid": {"paid"}})


def listen(*uris: str) -> dict[str, Any]:
    wanted = EVERY_KIND | {"resourceSubscriptions": list(uris)}
    return http.modern(http.request("subscriptions/listen", {"notifications": wanted}))


def notified(stream: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    for message in http.events(stream.iter_lines()):
        yield message["method"].removeprefix("notifications/"), message.get("params", {})


def test_a_subscription_is_acknowledged_and_told_of_what_its_key_may_read() -> None:
    resources = ResourceBox(public_plan, public_number, public_paid, secret_plan)
    message = listen("secret://plan", "paid://plan", "nope://plan", "public://plan", "public://7")
    headers = http.modern_headers(message) | {"Authorization": f"Bearer {KEY}"}
    app = http_app(Features(resources=resources), auth=keyed("public_*"))
    with (
        http.serving(app) as origin,
        httpx.stream("POST", f"{origin}/mcp", json=message, headers=headers, timeout=DEADLINE_SECONDS) as stream,
    ):
        told = notified(stream)
        name, params = next(told)
        assert name == "subscriptions/acknowledged"
        assert params["notifications"] == {
            "toolsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["public://plan", "public://7"],
        }
        for uri in ("secret://plan", "paid://plan", "public://7"):
            resources.updated(uri)
        name, params = next(told)
        assert (name, params["uri"]) == ("resources/updated", "public://7")


def test_a_server_without_resources_and_prompts_acknowledges_none() -> None:
    message = listen("public://plan")
    with (
        http.serving(http_app(add)) as origin,
        httpx.stream(
            "POST", f"{origin}/mcp", json=message, headers=http.modern_headers(message), timeout=DEADLINE_SECONDS
        ) as stream,
    ):
        assert next(notified(stream))[1]["notifications"] == {"toolsListChanged": True}


def test_a_session_watches_what_its_key_may_read() -> None:
    resources = ResourceBox(public_plan, public_paid, secret_plan)
    app = http_app(Features(resources=resources), auth=keyed("public_*"))
    with (
        http.serving(app) as origin,
        httpx.Client(timeout=DEADLINE_SECONDS, headers={"Authorization": f"Bearer {KEY}"}) as client,
    ):
        url = f"{origin}/mcp"
        headers = http.open_session(client, url)

        def answered(uri: str) -> dict[str, Any]:
            return http.answer(
                client.post(url, json=http.request("resources/subscribe", {"uri": uri}), headers=headers)
            )

        assert answered("public://plan")["result"] == {}
        assert answered("secret://plan")["error"]["code"] == -32002
        error = {"code": -32600, "message": "'public_paid' needs a scope that was not granted"}
        assert answered("paid://plan")["error"] == error


def test_a_server_without_sessions_watches_nothing_and_says_so() -> None:
    with (
        http.serving(http_app([public_plan, note], stateless=True, sse=False)) as origin,
        httpx.Client(timeout=DEADLINE_SECONDS, headers=http.HEADERS) as client,
    ):
        url = f"{origin}/mcp"
        capabilities = http.answer(client.post(url, json=http.initialize()))["result"]["capabilities"]
        assert capabilities["resources"] == {"subscribe": False, "listChanged": False}
        assert "logging" not in capabilities
        watching = {"uri": "public://plan"}
        for method, params in (
            ("resources/subscribe", watching),
            ("resources/unsubscribe", watching),
            ("logging/setLevel", {"level": "error"}),
        ):
            error = http.answer(client.post(url, json=http.request(method, params)))["error"]
            assert error["code"] == -32601
        noted = client.post(url, json=http.call("note"))  # without log messages, which it has not declared
        assert noted.headers["content-type"] == "application/json"
        assert noted.json()["result"]["content"] == [{"type": "text", "text": "done"}]
        message = listen("public://plan")  # the modern era needs no session
        with client.stream("POST", url, json=message, headers=http.modern_headers(message)) as stream:
            assert next(notified(stream))[1]["notifications"]["resourceSubscriptions"] == ["public://plan"]


def test_changed_keys_may_have_changed_every_list(tmp_path: Path) -> None:
    path, newer = tmp_path / "keys", tmp_path / "newer"
    for each, names in ((path, "public_plan"), (newer, "public_*")):
        each.touch(mode=0o600)
        each.write_text(f"part {KEY} tools={names}\n")
    message, resources = listen("public://plan"), ResourceBox(public_plan)
    headers = http.modern_headers(message) | {"Authorization": f"Bearer {KEY}"}
    app = http_app(Features.of(add, resources, public_greeting), auth=KeyFile(path, check_seconds=0.05))
    with (
        http.serving(app) as origin,
        httpx.stream("POST", f"{origin}/mcp", json=message, headers=headers, timeout=DEADLINE_SECONDS) as stream,
    ):
        told = (name for name, _ in notified(stream))
        assert next(told) == "subscriptions/acknowledged"
        newer.replace(path)
        first = next(told)
        resources.updated("public://plan")
        heard = {first, *takewhile(lambda name: name != "resources/updated", told)}
        assert heard == {"tools/list_changed", "resources/list_changed", "prompts/list_changed"}


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_key_that_may_read_less_is_told_of_less(era: str, tmp_path: Path) -> None:
    path, newer = tmp_path / "keys", tmp_path / "newer"
    for each, names in ((path, "public_*"), (newer, "public_number")):
        each.touch(mode=0o600)
        each.write_text(f"part {KEY} tools={names}\n")
    resources = ResourceBox(public_plan, public_number)
    app = http_app(Features(resources=resources), auth=KeyFile(path, check_seconds=0.05))
    bearer = {"Authorization": f"Bearer {KEY}"}
    with http.serving(app) as origin, httpx.Client(timeout=DEADLINE_SECONDS, headers=bearer) as client:
        url, uris = f"{origin}/mcp", ("public://plan", "public://7")
        if era == "modern":
            message = listen(*uris)
            opened = client.stream("POST", url, json=message, headers=http.modern_headers(message))
        else:
            headers = http.open_session(client, url)
            for uri in uris:
                wanted = http.request("resources/subscribe", {"uri": uri})
                assert http.answer(client.post(url, json=wanted, headers=headers))["result"] == {}
            opened = client.stream("GET", url, headers=headers)
        with opened as stream:
            told = notified(stream)
            if era == "modern":
                next(told)
            newer.replace(path)
            assert next(told)[0].endswith("/list_changed")
            for uri in uris:
                resources.updated(uri)
            updated = next(params["uri"] for name, params in told if name == "resources/updated")
        assert updated == "public://7"


def test_a_uri_of_a_hidden_template_is_not_read_by_another() -> None:
    @resource("shared://{+rest}")
    def public_rest(rest: str) -> str:
        return f"anything: {rest}"

    @resource("shared://internal/{name}")
    def internal(name: str) -> str:
        return f"internal: {name}"

    app = http_app([internal, public_rest], auth=keyed("public_*"))
    bearer = {"Authorization": f"Bearer {KEY}"}
    with http.serving(app) as origin, httpx.Client(timeout=DEADLINE_SECONDS, headers=bearer) as client:
        url = f"{origin}/mcp"
        headers = http.open_session(client, url)

        def read(uri: str) -> dict[str, Any]:
            return http.answer(client.post(url, json=http.request("resources/read", {"uri": uri}), headers=headers))

        assert read("shared://internal/plan")["error"]["code"] == -32002
        (content,) = read("shared://other/plan")["result"]["contents"]
        assert (content["uri"], content["text"]) == ("shared://other/plan", "anything: other/plan")
