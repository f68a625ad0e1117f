"""Dispatch of requests: which are answered at once, which have to be run, and which are refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge.protocol.messages import ErrorAnswer
from bridge.protocol.session import Session
from bridge.protocol.versions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LOG_LEVEL_KEY,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_KEY,
    UNSUPPORTED_VERSION,
)
from bridge.server.auth.access import EVERYTHING
from bridge.server.core import ServerCore
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.tools import ToolsCall, ToolsList
from bridge.server.observed import dispatch_of
from bridge.server.server import Server
from bridge.telemetry.current import enabled
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.function import tool, tools_from
from bridge.tools.toolbox import ToolBox
from bridge.wire.received import SERVER_INFO_KEY
from tests.server.http_server import CLIENT_INFO, call, initialize, modern, request
from tests.server.test_observed import Watched
from tests.server.tools import GREET, silent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool

IMPLEMENTATION = {"name": "tests", "version": "1"}


async def _add(arguments: Mapping[str, Any], _: InvocationContext) -> Any:
    return arguments["a"] + arguments["b"]


@tool
async def plain() -> None:
    """Return None."""


ADD = silent("add", _add)
REMOTE = replace(GREET, specification=replace(GREET.specification, name="remote"), server="there")


class Dispatched:
    """The dispatch of a server, and one session of it."""

    def __init__(self, *tools: Tool, **options: Any) -> None:
        self.publisher = Server(ToolBox(*tools), name="tests", version="1", **options)
        self.dispatch = dispatch_of(self.publisher)
        self.session = Session()
        self.session.initialize(initialize()["params"])

    def of(self, era: str, message: dict[str, Any]) -> bytes | ServedExchange:
        origin = LocalOrigin(EVERYTHING)
        if era == "modern":
            return self.dispatch.modern(message, origin)
        session = Session() if era == "new session" else self.session
        return self.dispatch.handshake(message, session, origin, session.version)

    def answer(self, era: str, message: dict[str, Any]) -> dict[str, Any]:
        answer = self.of(era, message)
        assert isinstance(answer, bytes)
        told: dict[str, Any] = json.loads(answer)
        return told

    def run(self, era: str, message: dict[str, Any]) -> ServedExchange:
        exchange = self.of(era, message)
        assert isinstance(exchange, ServedExchange)
        return exchange


@pytest.fixture(scope="module")
def dispatched() -> Dispatched:
    return Dispatched(ADD, GREET, REMOTE)


def enveloped(message: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """Return a request of the modern era with further members in its envelope; None removes one."""
    message = modern(message)
    whole = message["params"]["_meta"] | {CLIENT_INFO_KEY: CLIENT_INFO}
    names = {"version": PROTOCOL_VERSION_KEY, "capabilities": CAPABILITIES_KEY, "client": CLIENT_INFO_KEY}
    for name, value in meta.items():
        key = names.get(name, name)
        whole = {each: whole[each] for each in whole if each != key} | ({} if value is None else {key: value})
    return message | {"params": message["params"] | {"_meta": whole}}


def bare(method: str) -> dict[str, Any]:
    """Return a request without parameters."""
    return {"jsonrpc": "2.0", "id": 1, "method": method}


def opening(**params: Any) -> dict[str, Any]:
    whole = initialize()["params"] | params
    return request("initialize", {name: each for name, each in whole.items() if each is not None})


ADDING = call("add", {"a": 1, "b": 2})
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}
IMPLEMENTED = {**CLIENT_INFO, "title": "T", "description": "D", "websiteUrl": "https://example.org"}

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "a call": ("handshake", ADDING),
    "a call of a tool that asks": ("handshake", call("greet")),
    "a modern call of a tool that asks": ("modern", enveloped(call("greet"))),
    "a call without arguments": ("handshake", request("tools/call", {"name": "add"})),
    "arguments that are null": ("handshake", request("tools/call", {"name": "add", "arguments": None})),
    "a progress token": ("handshake", call("add", _meta={"progressToken": "p"})),
    "a trace": ("handshake", call("add", _meta=TRACE)),
    "an id that is text": ("handshake", ADDING | {"id": "seven"}),
    "an id that not all can write": ("handshake", ADDING | {"id": "\u2028"}),
    "a key beside JSON-RPC's": ("handshake", ADDING | {"extra": 1}),
    "metadata that is not known": ("handshake", call("add", _meta={"com.example/x": "1"})),
    "metadata that is null": ("handshake", call("add", _meta=None)),
    "a trace that is no text": ("handshake", call("add", _meta={"traceparent": 1})),
    "a task of the handshake era": ("handshake", call("add", task={"ttl": 1})),
    "an unknown tool": ("handshake", call("subtract")),
    "a tool of another server": ("handshake", call("remote")),
    "a modern call": ("modern", enveloped(ADDING)),
    "a client that says nothing of itself": ("modern", enveloped(ADDING, client=None)),
    "a client that says all of itself": ("modern", enveloped(ADDING, client=IMPLEMENTED)),
    "a client with icons": ("modern", enveloped(ADDING, client=CLIENT_INFO | {"icons": []})),
    "capabilities": ("modern", enveloped(ADDING, capabilities={"elicitation": {"form": {}}, "sampling": {}})),
    "a detail of a capability": ("modern", enveloped(ADDING, capabilities={"experimental": {"x": {}}})),
    "roots that may change": ("modern", enveloped(ADDING, capabilities={"roots": {"listChanged": True}})),
    "a modern progress token": ("modern", enveloped(ADDING, progressToken=1)),
    "a modern trace": ("modern", enveloped(ADDING, **TRACE)),
    "a modern trace that is no text": ("modern", enveloped(ADDING, traceparent=["00"])),
    "baggage alone": ("modern", enveloped(ADDING, baggage="a=1")),
    "a wish for log messages": ("modern", enveloped(ADDING, **{LOG_LEVEL_KEY: "info"})),
    "no answers to questions": ("modern", enveloped(call("add", inputResponses={}))),
    "the answers to questions": ("modern", enveloped(call("add", inputResponses={"name": {"action": "decline"}}))),
    "a subscription": ("modern", enveloped(request("subscriptions/listen", {"notifications": {}}))),
}

ANSWERED: dict[str, tuple[str, dict[str, Any]]] = {
    "a list": ("handshake", request("tools/list")),
    "a list without parameters": ("handshake", bare("tools/list")),
    "a cursor that is null": ("handshake", request("tools/list", {"cursor": None})),
    "a list of something": ("handshake", request("tools/list", {"of": 1})),
    "a ping": ("handshake", request("ping")),
    "a ping with parameters": ("handshake", request("ping", {"x": 1})),
    "a ping before the opening": ("new session", request("ping")),
    "a level of log messages": ("handshake", request("logging/setLevel", {"level": "info"})),
    "a modern list": ("modern", enveloped(request("tools/list"))),
    "a discovery": ("modern", enveloped(request("server/discover"))),
    "a discovery of something": ("modern", enveloped(request("server/discover", {"x": 1}))),
    "an opening": ("new session", initialize({"roots": {"listChanged": False}})),
    "an opening with metadata": ("new session", opening(_meta={})),
    "an opening where one has been": ("handshake", initialize()),
}

REFUSED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "a name that is a number": (INVALID_PARAMS, "handshake", request("tools/call", {"name": 5})),
    "no name": (INVALID_PARAMS, "handshake", request("tools/call", {"arguments": {}})),
    "arguments in a list": (INVALID_PARAMS, "handshake", request("tools/call", {"name": "add", "arguments": []})),
    "a call without parameters": (INVALID_PARAMS, "handshake", bare("tools/call")),
    "a page that is none": (INVALID_PARAMS, "handshake", request("tools/list", {"cursor": "x"})),
    "a cursor that is a number": (INVALID_PARAMS, "handshake", request("tools/list", {"cursor": 1})),
    "metadata that is no object": (INVALID_PARAMS, "handshake", call("add", _meta=[])),
    "a progress token that is true": (INVALID_PARAMS, "handshake", call("add", _meta={"progressToken": True})),
    "a progress token that is null": (INVALID_PARAMS, "handshake", call("add", _meta={"progressToken": None})),
    "resources, which nothing serves": (METHOD_NOT_FOUND, "handshake", request("resources/list")),
    "a page of prompts, which nothing serves": (
        METHOD_NOT_FOUND,
        "handshake",
        request("prompts/list", {"cursor": "x"}),
    ),
    "a method that is unknown": (METHOD_NOT_FOUND, "handshake", request("tools/forget")),
    "a subscription in the handshake era": (METHOD_NOT_FOUND, "handshake", request("subscriptions/listen")),
    "a call before the opening": (INVALID_REQUEST, "new session", ADDING),
    "answers in a list": (INVALID_PARAMS, "modern", enveloped(call("add", inputResponses=[]))),
    "an answer that is no object": (INVALID_PARAMS, "modern", enveloped(call("add", inputResponses={"name": 1}))),
    "a state that was not given out": (INVALID_PARAMS, "modern", enveloped(call("add", requestState="s"))),
    "a state that is no text": (INVALID_PARAMS, "modern", enveloped(call("add", requestState=1))),
    "no parameters": (INVALID_PARAMS, "modern", bare("tools/list")),
    "no envelope": (INVALID_PARAMS, "modern", request("tools/list", {"cursor": None})),
    "an envelope that is no object": (INVALID_PARAMS, "modern", call("add", _meta=["x"])),
    "no version": (INVALID_PARAMS, "modern", enveloped(ADDING, version=None)),
    "a version of the other era": (UNSUPPORTED_VERSION, "modern", enveloped(ADDING, version="2025-11-25")),
    "a version that is no text": (INVALID_PARAMS, "modern", enveloped(ADDING, version={})),
    "no capabilities": (INVALID_PARAMS, "modern", enveloped(ADDING, capabilities=None)),
    "capabilities in a list": (INVALID_PARAMS, "modern", enveloped(ADDING, capabilities=[])),
    "a capability that is no object": (INVALID_PARAMS, "modern", enveloped(ADDING, capabilities={"sampling": True})),
    "a client without a version": (INVALID_PARAMS, "modern", enveloped(ADDING, client={"name": "n"})),
    "a client whose title is a number": (
        INVALID_PARAMS,
        "modern",
        enveloped(ADDING, client=CLIENT_INFO | {"title": 1}),
    ),
    "a modern progress token that is a fraction": (INVALID_PARAMS, "modern", enveloped(ADDING, progressToken=1.5)),
    "a wish for log messages of no severity": (INVALID_PARAMS, "modern", enveloped(ADDING, **{LOG_LEVEL_KEY: "loud"})),
    "a modern ping, which is gone": (METHOD_NOT_FOUND, "modern", enveloped(request("ping"))),
    "a modern opening": (METHOD_NOT_FOUND, "modern", enveloped(initialize())),
    "an opening without parameters": (INVALID_PARAMS, "new session", bare("initialize")),
    "an opening without a client": (INVALID_PARAMS, "new session", opening(clientInfo=None)),
    "an opening of no version": (INVALID_PARAMS, "new session", opening(protocolVersion=1)),
}


@pytest.mark.parametrize(("era", "message"), CALLS.values(), ids=CALLS)
def test_a_call_has_to_be_run(dispatched: Dispatched, era: str, message: dict[str, Any]) -> None:
    exchange = dispatched.run(era, message)
    is_modern = era == "modern"
    assert (exchange.id, exchange.method, exchange.params) == (message["id"], message["method"], message["params"])
    assert (exchange.modern, exchange.version) == (is_modern, "2026-07-28" if is_modern else "2025-11-25")
    assert exchange.capabilities == (message["params"]["_meta"][CAPABILITIES_KEY] if is_modern else {})
    assert exchange.session is (None if is_modern else dispatched.session)


@pytest.mark.parametrize(("era", "message"), ANSWERED.values(), ids=ANSWERED)
def test_other_requests_are_answered_at_once(dispatched: Dispatched, era: str, message: dict[str, Any]) -> None:
    answer = dispatched.answer(era, message)
    assert answer["id"] == message["id"]
    assert "result" in answer


@pytest.mark.parametrize(("code", "era", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_request_is_refused(dispatched: Dispatched, code: int, era: str, message: dict[str, Any]) -> None:
    answer = dispatched.of(era, message)
    assert isinstance(answer, ErrorAnswer)
    assert answer.code == code
    told = json.loads(answer)
    assert (told["id"], told["error"]["code"]) == (message["id"], code)


def test_the_tables_cover_every_envelope_after_a_valid_one(dispatched: Dispatched) -> None:
    # A valid envelope is remembered: one that only resembles it must not be taken for it.
    for code, era, message in REFUSED.values():
        if era == "modern":
            dispatched.run("modern", enveloped(ADDING))
            assert dispatched.answer("modern", message)["error"]["code"] == code


@pytest.mark.parametrize("look_alike", [True, 1.0])
def test_a_token_that_equals_a_remembered_one_is_judged_by_itself(dispatched: Dispatched, look_alike: object) -> None:
    dispatched.run("modern", enveloped(ADDING, progressToken=1))
    refused = dispatched.answer("modern", enveloped(ADDING, progressToken=look_alike))
    assert refused["error"]["code"] == INVALID_PARAMS


def test_an_id_in_use_is_refused_until_its_request_is_answered(dispatched: Dispatched) -> None:
    class Call:
        def cancel(self) -> None:
            """Do nothing."""

    session = dispatched.session
    session.running["1"] = Call()
    for id_ in (1, "1"):
        refused = dispatched.answer("handshake", ADDING | {"id": id_})["error"]
        assert refused["code"] == INVALID_REQUEST
        assert "still runs" in refused["message"]
    del session.running["1"]
    assert dispatched.run("handshake", ADDING).id == 1


@pytest.mark.parametrize(
    "policy",
    [
        ExecutionPolicy(before=(lambda *_: None,)),
        ExecutionPolicy(after=(lambda *_: None,)),
        ExecutionPolicy(on_arguments_error=lambda *_: "no"),
        ExecutionPolicy(on_execution_error=lambda *_: "no"),
    ],
    ids=["before", "after", "arguments", "execution"],
)
def test_a_function_that_a_policy_observes_is_not_started_without_it(policy: ExecutionPolicy) -> None:
    (function,) = tools_from(plain)
    assert Dispatched(function).run("handshake", call("plain")).tool is function
    assert Dispatched(function, policy=policy).run("handshake", call("plain")).tool is None


@pytest.mark.parametrize(
    ("requested", "agreed"), [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25")]
)
def test_an_opening_agrees_on_the_version_asked_for_or_on_the_latest(requested: str, agreed: str) -> None:
    dispatched = Dispatched(ADD, title="Tests", instructions="Add.")
    assert dispatched.answer("new session", opening(protocolVersion=requested) | {"id": "x"}) == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": {
            "protocolVersion": agreed,
            "capabilities": {"logging": {}, "tools": {"listChanged": True}},
            "serverInfo": IMPLEMENTATION | {"title": "Tests"},
            "instructions": "Add.",
        },
    }


def test_a_list_is_written_once_and_again_when_the_tools_change() -> None:
    dispatched = Dispatched(ADD)
    publisher = dispatched.publisher

    def listed(era: str) -> Any:
        message = enveloped(request("tools/list")) if era == "modern" else request("tools/list")
        return dispatched.answer(era, message)["result"]

    # What was written stays unchanged, even if its source is changed.
    first = listed("handshake"), listed("modern")
    publisher.catalog.page(modern=False)["tools"] = []
    assert (listed("handshake"), listed("modern")) == first
    assert first[1]["_meta"] == {SERVER_INFO_KEY: IMPLEMENTATION}
    assert [tool["name"] for tool in first[0]["tools"]] == ["add"]
    publisher.tools.add(GREET)
    for era in ("handshake", "modern"):
        assert [tool["name"] for tool in listed(era)["tools"]] == ["add", "greet"]


def watching(watched: Watched | None) -> AbstractContextManager[object]:
    return nullcontext() if watched is None else enabled(watched.observer)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("broken", "function", "name"), [(ServerCore, "call", "add"), (FunctionMethod, "run", "plain")]
)
@pytest.mark.parametrize("is_observed", [False, True])
async def test_an_unexpected_error_is_logged_and_answered_with_the_id(
    broken: type[object],
    function: str,
    name: str,
    is_observed: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    watched = Watched(is_traced=False) if is_observed else None
    monkeypatch.setattr(broken, function, fail)
    with watching(watched):
        exchange = Dispatched(*tools_from(plain), ADD).run("modern", enveloped(call(name, {"a": 1, "b": 2})))
        answer, code = await exchange.responder.run(exchange)
    message, more = "the request 'tools/call' failed; the server's log says why", {"requestId": exchange.request_id}
    assert json.loads(answer)["error"] == {"code": code, "message": message, **({"data": more} if is_observed else {})}
    assert ("a secret" in caplog.text, watched is None or len(watched.records) == 1) == (True, True)


@pytest.mark.parametrize("is_observed", [False, True])
@pytest.mark.parametrize(("method", "broken"), [("tools/list", ToolsList), ("tools/call", ToolsCall)])
def test_so_is_one_before_anything_is_run(
    method: str,
    broken: type[object],
    is_observed: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    watched = Watched(is_traced=False) if is_observed else None
    monkeypatch.setattr(broken, "plan", fail)
    with watching(watched):
        answer = Dispatched(ADD).answer("handshake", request(method, {"name": "add"}))
    is_recorded = is_observed and method == "tools/call"
    assert (answer["error"].pop("data", None) is not None) == is_recorded
    message = f"the request {method!r} failed; the server's log says why"
    assert answer == {"jsonrpc": "2.0", "id": 1, "error": {"code": INTERNAL_ERROR, "message": message}}
    assert ("a secret" in caplog.text, watched is None or len(watched.records) == is_recorded) == (True, True)


def test_a_tool_that_comes_or_goes_is_seen_by_the_next_call() -> None:
    (function,) = tools_from(plain)
    dispatched = Dispatched(function)
    tools = dispatched.publisher.tools
    assert dispatched.run("handshake", call("plain")).tool is function
    tools.replace([ADD])
    assert dispatched.run("handshake", call("plain")).tool is None
    other = replace(function, interactive=True)
    tools.replace([other])
    assert dispatched.run("handshake", call("plain")).tool is other


def test_a_server_without_sessions_has_no_methods_of_sessions() -> None:
    dispatch = Dispatch(Server(ToolBox(ADD), name="tests"), has_sessions=False)
    for message, code in ((request("logging/setLevel", {"level": "info"}), METHOD_NOT_FOUND), (request("ping"), None)):
        answer = dispatch.handshake(message, None, LocalOrigin(EVERYTHING), "2025-11-25")
        assert isinstance(answer, bytes)
        assert json.loads(answer).get("error", {}).get("code") == code
