"""The registry is the only module that names the classes of protocol methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mcp_types import RequestParams

from bridge import prompt, resource
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS, METHOD_NOT_FOUND
from bridge.server.auth.access import EVERYTHING, Access
from bridge.server.core import ServerCore
from bridge.server.http.app import http_app
from bridge.server.methods.method import ERAS, Method, Target
from bridge.server.methods.registry import METHODS, methods_of
from bridge.telemetry.conventions import SERVER_OPERATION_DURATION
from bridge.telemetry.switch import enabled
from bridge.tools.toolbox import ToolBox
from bridge.wire.received import SERVER_INFO_KEY
from tests.server.http_server import answer, modern, modern_headers, open_session, request, serving
from tests.server.test_telemetry_paths import Watched
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bridge.server.methods.method import HandlerRequest, PlainRequest
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

SHOUT = "test/shout"
SURROUNDINGS = "test/surroundings"
ERAS_OF_CLIENTS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "handshake"])
PATHS = pytest.mark.parametrize("fast_path", [True, False], ids=["the fast path", "the SDK"])


class ShoutParams(RequestParams):
    text: str


class Shout(Method):
    """A method that answers at once."""

    name = SHOUT
    planned_in = ERAS

    def plan(self, request: PlainRequest) -> bytes | None:
        text = request.params.get("text")
        if not isinstance(text, str):
            return None
        WAYS.append("plan")
        return request.write(self._shouted(text, modern=request.modern))

    def params_type(self) -> type[ShoutParams]:
        return ShoutParams

    async def handle(self, request: HandlerRequest, params: ShoutParams) -> Json:
        WAYS.append("handler")
        return self._shouted(params.text, modern=request.modern)

    def _shouted(self, text: str, *, modern: bool) -> Json:
        if not text:
            raise ProtocolError(INVALID_PARAMS, "nothing to shout", {"of": self._core.name})
        return {"text": text.upper()} | ({"resultType": "complete"} if modern else {})


class Surroundings(Method):
    """A method that has to be awaited, has a context, and a target."""

    name = SURROUNDINGS
    planned_in = ERAS
    target_param = "name"

    def plan(self, request: PlainRequest) -> PlainRequest | None:
        return request if type(request.params.get("name")) is str else None

    def run(self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Any]) -> Awaitable[Any]:
        WAYS.append("run")
        return self._written(context, write, modern=request.modern)

    async def _written(self, context: InvocationContext, write: Callable[[Json], Any], *, modern: bool) -> Any:
        surroundings: Json = {"agent": context.headers["user-agent"]}
        return write(surroundings | ({"resultType": "complete"} if modern else {}))

    def params_type(self) -> type[RequestParams]:
        return RequestParams

    async def handle(self, request: HandlerRequest, params: RequestParams) -> Json:
        WAYS.append("handler")
        with request.running() as context:
            written: Json = await self._written(context, dict, modern=request.modern)
            return written

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
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
@PATHS
def test_a_registered_method_is_answered_on_both_paths_in_both_eras(is_modern: bool, fast_path: bool) -> None:
    with serving(http_app(ToolBox(ADD), name="tests", fast_path=fast_path)) as origin, httpx.Client() as client:
        url = f"{origin}/mcp"
        shouted = sent(client, url, request(SHOUT, {"text": "hi"}), is_modern=is_modern)
        refused = sent(client, url, request(SHOUT, {"text": ""}), is_modern=is_modern)
        surroundings = sent(client, url, request(SURROUNDINGS, {"name": "x"}), is_modern=is_modern)
    stamp = {"resultType": "complete", "_meta": {SERVER_INFO_KEY: {"name": "tests", "version": ""}}}
    of_era = stamp if is_modern else {}
    assert shouted == {"result": {"text": "HI"} | of_era}
    assert refused == {"error": {"code": INVALID_PARAMS, "message": "nothing to shout", "data": {"of": "tests"}}}
    assert surroundings == {"result": {"agent": client.headers["user-agent"]} | of_era}
    fast = ["plan", "plan", "run"]
    assert (fast if fast_path else ["handler"] * 3) == WAYS


def test_what_a_plan_does_not_take_goes_to_the_handler() -> None:
    with serving(http_app(ToolBox(ADD))) as origin, httpx.Client() as client:
        refused = sent(client, f"{origin}/mcp", request(SHOUT, {"text": 1}), is_modern=True)
    assert refused["error"]["code"] == INVALID_PARAMS
    assert WAYS == []


def test_the_fast_path_answers_where_the_header_names_the_target() -> None:
    message = modern(request(SURROUNDINGS, {"name": "x"}))
    headers = modern_headers(message)
    with serving(http_app(ToolBox(ADD))) as origin, httpx.Client() as client:
        for named in ("x", "y"):
            client.post(f"{origin}/mcp", json=message, headers=headers | {"mcp-name": named})
    assert WAYS == ["run", "handler"]


@ERAS_OF_CLIENTS
def test_what_is_observed_of_a_registered_method_is_the_same_on_both_paths(is_modern: bool) -> None:
    def observed(*, fast_path: bool) -> tuple[Any, Any, Any]:
        watched = Watched()
        with enabled(watched.observer):
            app = http_app(ToolBox(ADD), fast_path=fast_path)
            with serving(app) as origin, httpx.Client() as client:
                for message in (
                    request(SHOUT, {"text": "hi"}),
                    request(SHOUT, {"text": ""}),
                    request(SURROUNDINGS, {"name": "x"}),
                ):
                    sent(client, f"{origin}/mcp", message, is_modern=is_modern)
        return (
            [(labels, count) for labels, count in watched.counts(SERVER_OPERATION_DURATION) if SHOUT in str(labels)],
            [record | {"trace_id": None} for record in watched.records],
            [name for name, *_ in watched.spans if "test/" in name],
        )

    fast, slow = observed(fast_path=True), observed(fast_path=False)
    assert fast == slow
    counts, records, spans = fast
    assert sorted((labels["mcp.method.name"], count) for labels, count in counts) == [(SHOUT, 1), (SHOUT, 1)]
    assert [record["tool"] for record in records] == ["x"]
    assert spans == [SHOUT, SHOUT, f"{SURROUNDINGS} x"]


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


def test_every_method_can_answer_somehow() -> None:
    for name, method in methods_of(ServerCore([ADD, motto, greeting], name="tests")).items():
        assert method.name == name
        assert method.planned_in or method.params_type() is not None
