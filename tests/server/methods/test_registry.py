"""The registry is the only module that names the classes of protocol methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge import prompt, resource
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from bridge.server.auth.access import EVERYTHING, Access
from bridge.server.channel import context_of
from bridge.server.core import ServerCore
from bridge.server.http.app import http_app
from bridge.server.methods.method import MODERN, Method, Target, required_text
from bridge.server.methods.registry import METHODS, methods_of
from bridge.server.server import Server
from bridge.telemetry.conventions import SERVER_OPERATION_DURATION
from bridge.telemetry.current import enabled
from bridge.tools.toolbox import ToolBox
from bridge.wire.received import SERVER_INFO_KEY
from tests.server.http_server import answer, modern, modern_headers, open_session, request, serving
from tests.server.test_observed import PROTOCOLS, Watched
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.server.exchange import ServedExchange
    from bridge.tools.caller import Caller
    from bridge.types import Json

SHOUT = "test/shout"
SURROUNDINGS = "test/surroundings"
ERAS_OF_CLIENTS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "handshake"])


class Shout(Method):
    """A method that answers at once."""

    name = SHOUT

    def plan(self, exchange: ServedExchange) -> bytes:
        text = required_text(exchange.params, "text")
        WAYS.append("plan")
        if not text:
            raise ProtocolError(INVALID_PARAMS, "nothing to shout", {"of": self._core.name})
        return exchange.write({"text": text.upper()} | ({"resultType": "complete"} if exchange.modern else {}))


class Surroundings(Method):
    """A method that has to be awaited, has a context, and a target."""

    name = SURROUNDINGS
    target_param = "name"

    def plan(self, exchange: ServedExchange) -> None:
        required_text(exchange.params, "name")

    async def run(self, exchange: ServedExchange) -> bytes:
        WAYS.append("run")
        surroundings: Json = {"agent": context_of(exchange).headers["user-agent"]}
        return exchange.write(surroundings | ({"resultType": "complete"} if exchange.modern else {}))

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING, caller: Caller | None = None) -> Target:
        return Target(params["name"], params["name"], None)


WAYS: list[str] = []
"""Names of the functions that gave the answers."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(METHODS, SHOUT, Shout)
    monkeypatch.setitem(METHODS, SURROUNDINGS, Surroundings)
    yield
    WAYS.clear()


def sent(client: httpx.Client, url: str, message: Json, *, is_modern: bool) -> Json:
    """Return the response to a message, without the members of JSON-RPC."""
    if is_modern:
        message = modern(message)
        headers = modern_headers(message)
    else:
        headers = open_session(client, url)
    response = answer(client.post(url, json=message, headers=headers))
    assert (response.pop("jsonrpc"), response.pop("id")) == ("2.0", 1)
    return response


@ERAS_OF_CLIENTS
@pytest.mark.parametrize("http", PROTOCOLS)
def test_a_registered_method_is_answered_in_both_eras(is_modern: bool, http: str) -> None:
    with serving(http_app(Server(ToolBox(ADD), name="tests")), http=http) as origin, httpx.Client() as client:
        url = f"{origin}/mcp"
        shouted = sent(client, url, request(SHOUT, {"text": "hi"}), is_modern=is_modern)
        refused = sent(client, url, request(SHOUT, {"text": ""}), is_modern=is_modern)
        surroundings = sent(client, url, request(SURROUNDINGS, {"name": "x"}), is_modern=is_modern)
    stamp = {"resultType": "complete", "_meta": {SERVER_INFO_KEY: {"name": "tests", "version": ""}}}
    of_era = stamp if is_modern else {}
    assert shouted == {"result": {"text": "HI"} | of_era}
    assert refused == {"error": {"code": INVALID_PARAMS, "message": "nothing to shout", "data": {"of": "tests"}}}
    assert surroundings == {"result": {"agent": client.headers["user-agent"]} | of_era}
    assert WAYS == ["plan", "plan", "run"]


@ERAS_OF_CLIENTS
def test_parameters_that_are_malformed_are_refused(is_modern: bool) -> None:
    with serving(http_app(ToolBox(ADD))) as origin, httpx.Client() as client:
        for method in (SHOUT, SURROUNDINGS):
            refused = sent(client, f"{origin}/mcp", request(method, {"text": 1}), is_modern=is_modern)
            assert refused["error"]["code"] == INVALID_PARAMS
            assert "must be text" in refused["error"]["message"]
    assert WAYS == []


def test_a_method_is_run_where_the_header_names_the_target() -> None:
    message = modern(request(SURROUNDINGS, {"name": "x"}))
    headers = modern_headers(message)
    with serving(http_app(ToolBox(ADD))) as origin, httpx.Client() as client:
        found, refused = (
            client.post(f"{origin}/mcp", json=message, headers=headers | {"mcp-name": named}) for named in ("x", "y")
        )
    assert found.json()["result"]["agent"] == client.headers["user-agent"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, HEADER_MISMATCH)
    assert WAYS == ["run"]


def test_a_method_of_one_era_is_unknown_in_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shout, "eras", MODERN)
    with serving(http_app(ToolBox(ADD))) as origin, httpx.Client() as client:
        message = request(SHOUT, {"text": "hi"})
        assert "result" in sent(client, f"{origin}/mcp", message, is_modern=True)
        refused = sent(client, f"{origin}/mcp", message, is_modern=False)
    assert refused == {"error": {"code": METHOD_NOT_FOUND, "message": "Method not found", "data": SHOUT}}


@ERAS_OF_CLIENTS
@pytest.mark.parametrize("http", PROTOCOLS)
def test_a_registered_method_is_observed(is_modern: bool, http: str) -> None:
    watched = Watched()
    with enabled(watched.observer):
        app = http_app(ToolBox(ADD))
        with serving(app, http=http) as origin, httpx.Client() as client:
            for message in (
                request(SHOUT, {"text": "hi"}),
                request(SHOUT, {"text": ""}),
                request(SURROUNDINGS, {"name": "x"}),
            ):
                sent(client, f"{origin}/mcp", message, is_modern=is_modern)
    counts = [(labels, count) for labels, count in watched.counts(SERVER_OPERATION_DURATION) if SHOUT in str(labels)]
    assert sorted((labels["mcp.method.name"], count) for labels, count in counts) == [(SHOUT, 1), (SHOUT, 1)]
    assert sorted(labels.get("error.type", "") for labels, _ in counts) == ["", str(INVALID_PARAMS)]
    assert [(record["tool"], record["outcome"]) for record in watched.records] == [("x", "ok")]
    assert [name for name, *_ in watched.spans if "test/" in name] == [SHOUT, SHOUT, f"{SURROUNDINGS} x"]


def test_an_unserved_list_and_an_unknown_method_are_not_found() -> None:
    with serving(http_app(ToolBox(ADD))) as origin, httpx.Client() as client:
        for method in ("prompts/list", "resources/list", "resources/templates/list", "test/nothing"):
            error = {"code": METHOD_NOT_FOUND, "message": "Method not found", "data": method}
            for is_modern in (True, False):
                assert sent(client, f"{origin}/mcp", request(method), is_modern=is_modern) == {"error": error}


@resource("test://motto")
def motto() -> str:
    return "Less is better."


@prompt
def greeting() -> str:
    return "Hello"


def test_every_method_reads_its_parameters() -> None:
    for name, method in methods_of(ServerCore([ADD, motto, greeting], name="tests")).items():
        assert method.name == name
        assert type(method).plan is not Method.plan
        assert method.eras
