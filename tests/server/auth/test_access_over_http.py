"""Lists and calls by callers with different access, in both eras and over SSE, before ASGI and in ASGI."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier, KeyFile
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Handshake, Modern, Sse, bearer, talking, toolbox
from tests.server.auth.issuer import AUDIENCE, Issuer
from tests.server.differential_tools import MIRRORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEYS = ApiKeys(ApiKey("all", ADA), ApiKey("some", BOB, tools=("add", "who*")))
EVERY_WAY = [(kind, way) for kind in ("modern", "handshake", "sse") for way in ("direct", "h11")]


def names(peer: Modern) -> list[str]:
    """Return the listed names."""
    return [each["name"] for each in peer.ask(http.request("tools/list"))["result"]["tools"]]


@contextmanager
def news(peer: Modern) -> Iterator[Iterator[dict[str, Any]]]:
    """Yield the notifications of a client's stream, from now on."""
    if isinstance(peer, Sse):
        yield http.events(peer.lines)
    elif isinstance(peer, Handshake):
        with peer.client.stream("GET", peer.url, headers=peer.headers | peer.credential) as stream:
            stream.raise_for_status()
            yield http.events(stream.iter_lines())
    else:
        wanted = {"notifications": {"toolsListChanged": True}}
        listen = http.modern(http.request("subscriptions/listen", wanted))
        headers = http.modern_headers(listen) | peer.credential
        with peer.client.stream("POST", peer.url, json=listen, headers=headers) as stream:
            stream.raise_for_status()
            heard = http.events(stream.iter_lines())
            assert next(heard)["method"] == "notifications/subscriptions/acknowledged"
            yield heard


@pytest.mark.parametrize(("kind", "way"), EVERY_WAY)
def test_a_tool_that_a_key_may_not_use_is_as_unknown_as_any_other(
    serving: Callable[..., str], kind: str, way: str
) -> None:
    origin = serving(http_app(toolbox(), auth=KEYS), http=way)
    with talking(kind, origin, ADA) as whole, talking(kind, origin, BOB) as part:
        for _ in range(2):
            assert names(whole) == ["whoami", "add", "delete_all"]
            assert names(part) == ["whoami", "add"]
        assert whole.ask(http.call("delete_all"))["result"]["content"][0]["text"] == "deleted"
        for name in ("delete_all", "delete_any", "whoamj"):
            answer = part.ask(http.call(name))
            told = {"whoamj": "there is no tool named 'whoamj'; did you mean 'whoami'?"}
            expected = told.get(name, f"there is no tool named {name!r}")
            assert answer["error"] == {"code": -32602, "message": expected}


def test_a_list_that_differs_by_caller_is_kept_by_nobody_else(serving: Callable[..., str]) -> None:
    origin = serving(http_app(toolbox(), auth=KEYS))
    for token in (ADA, BOB):
        with talking("modern", origin, token) as peer:
            assert peer.ask(http.request("tools/list"))["result"]["cacheScope"] == "private"


@pytest.mark.parametrize("kind", ["modern", "handshake"])
def test_pages_and_cursors_know_only_what_the_key_may_use(serving: Callable[..., str], kind: str) -> None:
    origin = serving(http_app(Server(toolbox(), name="bridge", page_size=1), auth=KEYS))
    with talking(kind, origin, BOB) as peer:
        found, cursor = [], None
        while True:
            result = peer.ask(http.request("tools/list", {"cursor": cursor} if cursor else {}))["result"]
            found += [each["name"] for each in result["tools"]]
            if (cursor := result.get("nextCursor")) is None:
                break
        assert found == ["whoami", "add"]


def test_headers_of_a_hidden_tools_parameters_are_those_of_an_unknown_tool(serving: Callable[..., str]) -> None:
    origin = serving(http_app(ToolBox(*toolbox(), MIRRORED), auth=KEYS))
    with talking("modern", origin, BOB) as peer:
        hidden, unknown = [peer.send(http.call(name, {"region": "here"})) for name in ("mirrored", "nothings")]
    assert hidden.status_code == unknown.status_code == 400
    assert hidden.json()["error"]["code"] == unknown.json()["error"]["code"] == -32602
    assert hidden.text.replace("mirrored", "nothings") == unknown.text


@pytest.mark.parametrize("kind", ["modern", "handshake"])
def test_a_tool_that_comes_is_listed_to_whom_it_is_for(serving: Callable[..., str], kind: str) -> None:
    box = toolbox()
    origin = serving(http_app(box, auth=KEYS))

    @tool
    async def who_else() -> str:
        """Say who else."""
        return "nobody"

    with talking(kind, origin, ADA) as whole, talking(kind, origin, BOB) as part:
        assert (len(names(whole)), len(names(part))) == (3, 2)
        box.add(who_else)
        assert (len(names(whole)), len(names(part))) == (4, 3)
        box.remove("add")
        assert names(part) == ["whoami", "who_else"]
        assert part.ask(http.call("add", {"a": 1, "b": 2}))["error"]["code"] == -32602


@pytest.mark.parametrize(("kind", "way"), EVERY_WAY)
def test_a_scope_that_is_missing_is_403_before_the_tool_runs(
    serving: Callable[..., str], issuer: Issuer, kind: str, way: str
) -> None:
    ran: list[str] = []

    @tool
    async def delete_one(name: str) -> str:
        """Delete one."""
        ran.append(name)
        return "deleted"

    auth = Auth(
        JwtVerifier(issuer.url, AUDIENCE),
        resource_url=AUDIENCE,
        required_scopes=["tools"],
        tool_scopes={"delete_*": ["write"]},
    )
    origin = serving(http_app(ToolBox(*toolbox(), delete_one), auth=auth), http=way)
    call = http.call("delete_one", {"name": "x"})
    with talking(kind, origin, issuer.token(scope="tools")) as peer:
        assert "delete_one" in names(peer)  # so that its caller can ask for the scope
        answer = peer.send(call)
        assert answer.status_code == 403
        challenge = answer.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in challenge
        assert 'scope="tools write"' in challenge
        assert "resource_metadata=" in challenge
        assert peer.ask(http.call("add", {"a": 1, "b": 2}))["result"]["structuredContent"] == {"result": 3}
    assert ran == []
    with talking(kind, origin, issuer.token(scope="tools write")) as peer:
        assert peer.ask(call)["result"]["content"][0]["text"] == "deleted"
    assert ran == ["x"]


@pytest.mark.parametrize(("kind", "way"), EVERY_WAY)
def test_a_tool_that_is_not_there_for_a_key_asks_for_no_scope(serving: Callable[..., str], kind: str, way: str) -> None:
    keys = ApiKeys(ApiKey("some", BOB, tools=("add",), scopes=frozenset()))
    origin = serving(http_app(toolbox(), auth=Auth(keys, tool_scopes={"delete_*": ["write"]})), http=way)
    with talking(kind, origin, BOB) as peer:
        for name in ("delete_all", "delete_any"):
            assert peer.ask(http.call(name))["error"] == {"code": -32602, "message": f"there is no tool named {name!r}"}


def test_a_body_that_is_hard_to_read_gets_around_no_scope(serving: Callable[..., str], issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), tool_scopes={"delete_*": ["write"]})
    origin = serving(http_app(toolbox(), auth=auth))
    call = http.modern(http.call("delete_all"))
    text = httpx.Request("POST", origin, json=call).content
    headers = http.modern_headers(call) | bearer(issuer.token())
    hidden = text.replace(b'"arguments":{', b'"arguments":{"x":"\\"","y":[' + b"[]," * 50_000 + b'[]],"z":"\\""', 1)
    for body, status in (
        (text.replace(b'"jsonrpc"', b'"x":"\\ud800","jsonrpc"', 1), 403),
        (text.replace(b'"jsonrpc"', b'"method":"ping","jsonrpc"', 1), 403),
        (text.replace(b'"arguments":{', b'"arguments":{"x":' + b"[" * 300 + b"]" * 300, 1), 403),
        (b"\xef\xbb\xbf" + text, 400),
        (text.decode().encode("utf-16"), 400),
        (hidden, 413),
        (hidden.decode().encode("utf-16"), 400),  # its values are not counted, so nothing parses it
    ):
        answer = httpx.post(f"{origin}/mcp", content=body, headers=headers, timeout=20)
        assert answer.status_code == status


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
def test_keys_that_change_are_taken_up_without_dropping_anybody(
    serving: Callable[..., str], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(f"ada {ADA}\nbob {BOB} tools=add\n")
    box = toolbox()
    server = Server(box, name="tests")
    origin = serving(http_app(server, auth=KeyFile(path, check_seconds=0.05)))
    with talking(kind, origin, BOB) as bob:
        assert names(bob) == ["add"]
        with news(bob) as heard:
            newer = tmp_path / "newer"
            newer.touch(mode=0o600)
            newer.write_text(f"bob {BOB} tools=delete_*\n")
            newer.replace(path)
            assert "notifications/tools/list_changed" in (each["method"] for each in heard)
        assert names(bob) == ["delete_all"]
        assert bob.ask(http.call("add", {"a": 1, "b": 2}))["error"]["code"] == -32602
    assert httpx.get(f"{origin}/sse", headers=bearer(ADA)).status_code == 401
