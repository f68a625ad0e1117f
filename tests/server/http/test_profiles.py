"""Profiles over HTTP: each at a path of its own, given to callers by key, scope and claim."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge import prompt, resource, tool
from bridge.errors import DefinitionError
from bridge.prompts.box import PromptBox
from bridge.resources.box import ResourceBox
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier, KeyFile
from bridge.server.features import Features
from bridge.server.limits import Limits, Rate
from bridge.server.profiles import Profile
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.conftest import issuer
from tests.server.auth.guarded import ADA, BOB, KINDS, Modern, bearer
from tests.server.auth.issuer import AUDIENCE
from tests.server.auth.test_credential_monitor import ended, streaming

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.auth.issuer import Issuer

__all__ = ["issuer"]  # a fixture
WAYS = pytest.mark.parametrize("way", ["direct", "h11"])
ERAS = pytest.mark.parametrize("kind", ["modern", "handshake"])
CARL = "carl-carl-carl-carl-carl"
KEYS = ApiKeys(ApiKey("ada", ADA, profiles=("data",)), ApiKey("bob", BOB, profiles=("ops",)), ApiKey("carl", CARL))
DATA = Profile(name="data", include=("query", "table*", "report"))
OPS = Profile(name="ops", include=("restart", "runbook*"), rename={"restart": "restart_now"})


@tool
async def query(text: str) -> str:
    """Ask the database."""
    return f"queried {text}"


@tool
async def restart(name: str) -> str:
    """Restart a service."""
    return f"restarted {name}"


@resource("db://table")
async def table() -> str:
    """A table."""
    return "rows"


@resource("ops://runbook")
async def runbook() -> str:
    """A runbook."""
    return "steps"


@prompt
async def report(topic: str) -> str:
    """Write a report."""
    return f"Report on {topic}"


def features() -> Features:
    return Features(tools=ToolBox(query, restart), resources=ResourceBox(table, runbook), prompts=PromptBox(report))


class Connect:
    """Pages that need no credential."""

    path = "/connect"

    def routes(self, *_: Any) -> Any:
        return ()


class At(Modern):
    """A client of a profile."""

    def __init__(self, client: Any, origin: str, token: str, kind: str, profile: str) -> None:
        super().__init__(client, origin, bearer(token))
        self.url = f"{origin}/mcp/{profile}" if profile else f"{origin}/mcp"
        self._send = KINDS[kind].send
        self.headers: dict[str, str] = {}
        if kind == "handshake":
            client.headers.update(self.credential)
            self.headers = http.open_session(client, self.url)

    def send(self, message: dict[str, Any]) -> Any:
        return self._send(self, message)


def posted(origin: str, path: str, token: str | None = None) -> Any:
    message = http.modern(http.request("tools/list"))
    headers = http.modern_headers(message) | ({} if token is None else bearer(token))
    with http.whole_client() as client:
        return client.post(origin + path, json=message, headers=headers)


@WAYS
@ERAS
def test_each_profile_has_a_path_of_its_own_and_finds_nothing_of_another(
    serving: Callable[..., str], kind: str, way: str
) -> None:
    origin = serving(http_app(features(), auth=KEYS, profiles=[DATA, OPS]), http=way)
    for token, profile, tools, uris, prompts in (
        (ADA, "data", ["query"], ["db://table"], ["report"]),
        (BOB, "ops", ["restart_now"], ["ops://runbook"], []),
        (CARL, "ops/", ["restart_now"], ["ops://runbook"], []),
    ):
        with http.whole_client() as client:
            peer = At(client, origin, token, kind, profile)
            for _ in range(2):
                listed = peer.ask(http.request("tools/list"))["result"]["tools"]
                assert [each["name"] for each in listed] == tools
            listed = peer.ask(http.request("resources/list"))["result"]["resources"]
            assert [each["uri"] for each in listed] == uris
            listed = peer.ask(http.request("prompts/list"))["result"]["prompts"]
            assert [each["name"] for each in listed] == prompts
    with http.whole_client() as client:
        peer = At(client, origin, BOB, kind, "ops")
        answer = peer.ask(http.call("restart_now", {"name": "db"}))
        assert answer["result"]["content"][0]["text"] == "restarted db"
        for name in ("query", "restart"):
            assert peer.ask(http.call(name, {"text": "x"}))["error"]["message"].startswith("there is no tool named")
        read = peer.ask(http.request("resources/read", {"uri": "db://table"}))
        unknown = peer.ask(http.request("resources/read", {"uri": "db://nothing"}))
        assert read["error"]["code"] == unknown["error"]["code"]
        got = peer.ask(http.request("prompts/get", {"name": "report", "arguments": {"topic": "x"}}))
        assert "no prompt" in got["error"]["message"]
        reference = {"type": "ref/prompt", "name": "report"}
        given = {"ref": reference, "argument": {"name": "topic", "value": ""}}
        assert "error" in peer.ask(http.request("completion/complete", given))
        if kind == "handshake":
            assert "error" in peer.ask(http.request("resources/subscribe", {"uri": "db://table"}))


@WAYS
def test_a_profile_that_is_not_given_is_as_unknown_as_any_other_path(serving: Callable[..., str], way: str) -> None:
    origin = serving(http_app(features(), auth=KEYS, profiles=[DATA, OPS]), http=way)
    answers = [
        posted(origin, path, token)
        for token, path in (
            (ADA, "/mcp/ops"), (ADA, "/mcp/ops/"), (BOB, "/mcp/data"), (ADA, "/mcp/none"), (CARL, "/mcp/none"),
            (CARL, "/mcp"), (ADA, "/mcp"), (CARL, "/sse"),
        )
    ]  # fmt: skip
    assert {(each.status_code, each.text) for each in answers} == {(404, "Not Found")}
    assert posted(origin, "/mcp/ops").status_code == 401


def test_a_session_of_one_profile_is_unknown_to_another(serving: Callable[..., str]) -> None:
    origin = serving(http_app(features(), auth=KEYS, profiles=[DATA, OPS]))
    with http.whole_client() as client:
        peer = At(client, origin, CARL, "handshake", "data")
        peer.url = f"{origin}/mcp/ops"
        answer = peer.send(http.request("tools/list"))
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "Session not found")


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
def test_the_default_profile_is_at_the_path_of_the_server(serving: Callable[..., str], kind: str) -> None:
    default = Profile(name="default", include=("query",))
    origin = serving(http_app(features(), auth=KEYS, profiles=[default, OPS]))
    with http.whole_client() as client:
        peer = KINDS[kind](client, origin, bearer(CARL))
        try:
            listed = peer.ask(http.request("tools/list"))["result"]["tools"]
        finally:
            getattr(peer, "close", lambda: None)()
    assert [each["name"] for each in listed] == ["query"]
    for path in ("/mcp", "/sse"):
        assert posted(origin, path, ADA).status_code == 404
    with http.whole_client() as client:
        assert client.get(f"{origin}/mcp/server-card").json()["remotes"][0]["url"] == f"{origin}/mcp"


def test_without_a_default_profile_no_card_names_an_endpoint(serving: Callable[..., str]) -> None:
    origin = serving(http_app(features(), auth=KEYS, profiles=[DATA]))
    with http.whole_client() as client:
        for path in ("/mcp/server-card", "/.well-known/ai-catalog.json", "/.well-known/nothing"):
            assert client.get(origin + path, headers=bearer(CARL)).status_code == 404


@WAYS
def test_tokens_get_profiles_by_scope_and_claim(serving: Callable[..., str], issuer: Issuer, way: str) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), resource_url=AUDIENCE)
    profiles = [
        Profile(name="scoped", scopes=frozenset({"data"})),
        Profile(name="claimed", claims={"team": "data"}),
        Profile(name="both", scopes=frozenset({"data"}), claims={"groups": "ops"}),
        Profile(name="open"),
    ]
    origin = serving(http_app(features(), auth=auth, profiles=profiles), http=way)
    for claims, expected in (
        ({}, {"open"}),
        ({"scope": "data"}, {"open", "scoped"}),
        ({"team": "data"}, {"open", "claimed"}),
        ({"team": "database"}, {"open"}),
        ({"scope": "data", "groups": ["ops", "all"]}, {"open", "scoped", "both"}),
        ({"groups": "ops"}, {"open"}),
    ):
        token = issuer.token(**claims)
        for _ in range(2):
            found = {each.name: posted(origin, f"/mcp/{each.name}", token).status_code for each in profiles}
            assert {name for name, status in found.items() if status == 200} == expected
    refused = posted(origin, "/mcp/scoped", issuer.token())
    assert refused.status_code == 403
    assert 'scope="data"' in refused.headers["www-authenticate"]
    assert posted(origin, "/mcp/both", issuer.token()).status_code == 404


def test_scopes_of_tools_go_by_the_names_of_the_profile(serving: Callable[..., str], issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), tool_scopes={"restart_now": ["write"]})
    origin = serving(http_app(features(), auth=auth, profiles=[OPS]))
    with http.whole_client() as client:
        call = http.call("restart_now", {"name": "db"})
        assert At(client, origin, issuer.token(), "modern", "ops").send(call).status_code == 403
        answer = At(client, origin, issuer.token(scope="write"), "modern", "ops").ask(call)
    assert answer["result"]["content"][0]["text"] == "restarted db"


def test_limits_are_counted_over_all_profiles(serving: Callable[..., str]) -> None:
    server = Server(features(), name="all", limits=Limits(rate=Rate(2, 600)))
    origin = serving(http_app(server, auth=KEYS, profiles=[DATA, OPS]))
    statuses = [posted(origin, path, CARL).status_code for path in ("/mcp/data", "/mcp/ops", "/mcp/data")]
    assert statuses == [200, 200, 429]


def test_a_key_for_profiles_is_for_nothing_else(serving: Callable[..., str]) -> None:
    server = Server(features(), name="all")

    @server.route("/page")
    async def page(_: Any) -> Any:
        raise AssertionError

    origin = serving(http_app(server, auth=KEYS))
    refused = posted(origin, "/mcp", ADA)
    assert (refused.status_code, refused.headers["www-authenticate"].count("insufficient_scope")) == (403, 1)
    server = Server(features(), name="all")
    server.route("/page")(page)
    origin = serving(http_app(server, auth=KEYS, profiles=[DATA]))
    with http.whole_client() as client:
        assert client.get(f"{origin}/page", headers=bearer(ADA)).status_code == 403


def test_streams_end_when_a_key_loses_its_profile(serving: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"ada {ADA} profiles=data\n", encoding="utf-8")
    origin = serving(http_app(features(), auth=KeyFile(path, check_seconds=0.02), profiles=[DATA, OPS]))
    listen = http.modern(http.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    headers = http.modern_headers(listen) | bearer(ADA)
    url = f"{origin}/mcp/data"
    with http.whole_client() as client, client.stream("POST", url, json=listen, headers=headers) as stream:
        events = http.events(stream.iter_lines())
        assert next(events)["method"] == "notifications/subscriptions/acknowledged"
        path.write_text(f"ada {ADA} profiles=ops\n", encoding="utf-8")
        told = {each["method"] for each in events if "method" in each}  # then it ends
        assert told <= {"notifications/tools/list_changed"}
    assert posted(origin, "/mcp/data", ADA).status_code == 404
    assert posted(origin, "/mcp/ops", ADA).status_code == 200


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
def test_streams_end_when_a_key_loses_the_scope_of_their_profile(
    serving: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"ada {ADA} scopes=ops\n", encoding="utf-8")
    profile = replace(OPS, name="default", scopes=frozenset({"ops"}))
    origin = serving(http_app(features(), auth=KeyFile(path, check_seconds=0.02), profiles=[profile]))
    with streaming(kind, origin, ADA) as lines:
        path.write_text(f"ada {ADA} scopes=other\n", encoding="utf-8")
        assert ended(kind, lines)
    assert posted(origin, "/mcp", ADA).status_code == 403


def test_profiles_that_cannot_be_served_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two profiles have the name 'data'"):
        http_app(features(), profiles=[DATA, DATA])
    with pytest.raises(DefinitionError, match="callers are not authenticated"):
        http_app(features(), profiles=[Profile(name="data", scopes=frozenset({"x"}))])
    for name in ("sse", "messages", "status", "metrics", "healthz", "readyz", "connect"):
        given = replace(features(), pages=Connect()) if name == "connect" else features()
        with pytest.raises(
            DefinitionError, match=f"the profile '{name}' would be served at '/{name}', which is a page"
        ):
            http_app(given, path="/", profiles=[Profile(name=name), Profile(name="default")])
        assert http_app(given, profiles=[Profile(name=name)]).profiles
    with pytest.raises(ValueError, match="streamable=True"):
        http_app(features(), profiles=[DATA], streamable=False)
