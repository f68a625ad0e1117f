from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bridge.protocol.messages import error_message, result_message
from bridge.protocol.versions import CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, PROTOCOL_VERSION_KEY
from bridge.server.core import ServerCore
from bridge.server.fast_path import FastPath
from bridge.server.methods.method import PlainRequest
from bridge.server.methods.plain_calls import PlainCalls
from bridge.server.publisher import Publisher
from bridge.server.telemetry_fast_path import ObservedResponder
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.function import tool, tools_from
from bridge.tools.toolbox import ToolBox
from bridge.wire.received import SERVER_INFO_KEY
from tests.server.http_server import CLIENT_INFO, call, initialize, modern, request
from tests.server.test_telemetry_paths import Watched
from tests.server.tools import GREET, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.tool import Tool

IMPLEMENTATION = {"name": "tests", "version": "1"}


async def _add(arguments: Mapping[str, Any], _: InvocationContext) -> Any:
    return arguments["a"] + arguments["b"]


ADD = silent("add", _add)
REMOTE = replace(GREET, specification=replace(GREET.specification, name="remote"), server="there")
MIRRORED = silent("mirrored", _add, parameters={"properties": {"a": {"type": "string", "x-mcp-header": "A"}}})


def published(*tools: Tool, **options: Any) -> Publisher:
    return Publisher(ToolBox(*tools), name="tests", version="1", **options)


@pytest.fixture
def plans() -> FastPath:
    return FastPath(published(ADD, GREET, MIRRORED, REMOTE))


def enveloped(message: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """Return a request of the modern era with further members in its envelope; None removes one."""
    message = modern(message)
    whole = message["params"]["_meta"] | {CLIENT_INFO_KEY: CLIENT_INFO}
    names = {"version": PROTOCOL_VERSION_KEY, "capabilities": CAPABILITIES_KEY, "client": CLIENT_INFO_KEY}
    for name, value in meta.items():
        key = names.get(name, name)
        whole = {each: whole[each] for each in whole if each != key} | ({} if value is None else {key: value})
    return message | {"params": message["params"] | {"_meta": whole}}


ADDING = call("add", {"a": 1, "b": 2})
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"}
IMPLEMENTED = {**CLIENT_INFO, "title": "T", "description": "D", "websiteUrl": "https://example.org"}

PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "a call": ("handshake", ADDING),
    "a call of a tool that asks": ("handshake", call("greet")),
    "a modern call of a tool that asks": ("modern", enveloped(call("greet"))),
    "a call without arguments": ("handshake", request("tools/call", {"name": "add"})),
    "arguments that are null": ("handshake", request("tools/call", {"name": "add", "arguments": None})),
    "a progress token": ("handshake", call("add", _meta={"progressToken": "p"})),
    "a trace": ("handshake", call("add", _meta=TRACE)),
    "an id that is text": ("handshake", ADDING | {"id": "seven"}),
    "a list": ("handshake", request("tools/list")),
    "a list without parameters": ("handshake", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    "a cursor that is null": ("handshake", request("tools/list", {"cursor": None})),
    "a ping": ("handshake", request("ping")),
    "resources, which nothing serves": ("handshake", request("resources/list")),
    "prompts, which nothing serves": ("handshake", request("prompts/list")),
    "a modern call": ("modern", enveloped(ADDING)),
    "a client that says nothing of itself": ("modern", enveloped(ADDING, client=None)),
    "a client that says all of itself": ("modern", enveloped(ADDING, client=IMPLEMENTED)),
    "capabilities": ("modern", enveloped(ADDING, capabilities={"elicitation": {"form": {}}, "sampling": {}})),
    "roots that may change": ("modern", enveloped(ADDING, capabilities={"roots": {"listChanged": True}})),
    "a modern progress token": ("modern", enveloped(ADDING, progressToken=1)),
    "a modern trace": ("modern", enveloped(ADDING, **TRACE)),
    "baggage alone": ("modern", enveloped(ADDING, baggage="a=1")),
    "a modern list": ("modern", enveloped(request("tools/list"))),
    "a discovery": ("modern", enveloped(request("server/discover"))),
    "an opening": ("initialize", initialize({"roots": {"listChanged": False}})),
    "a wish for log messages": ("modern", enveloped(ADDING, **{LOG_LEVEL_KEY: "info"})),
    "a tool of another server": ("handshake", call("remote")),
}

HANDED_OVER: dict[str, tuple[str, dict[str, Any]]] = {
    "an unknown tool is an error of the protocol": ("handshake", call("subtract")),
    "a mirrored argument is compared with its header": ("modern", enveloped(call("mirrored", {"a": "x"}))),
    "a name that is a number": ("handshake", request("tools/call", {"name": 5})),
    "no name": ("handshake", request("tools/call", {"arguments": {}})),
    "arguments in a list": ("handshake", request("tools/call", {"name": "add", "arguments": []})),
    "a call without parameters": ("handshake", {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}),
    "a task": ("handshake", call("add", task={"ttl": 1})),
    "the answers to questions": ("modern", enveloped(call("add", inputResponses={}))),
    "the state of an earlier round": ("modern", enveloped(call("add", requestState="s"))),
    "a further page": ("handshake", request("tools/list", {"cursor": "x"})),
    "a list of something": ("handshake", request("tools/list", {"of": 1})),
    "a key beside JSON-RPC's": ("handshake", ADDING | {"extra": 1}),
    "an id that not all can write": ("handshake", ADDING | {"id": "\u2028"}),
    "metadata that is no object": ("handshake", call("add", _meta=[])),
    "metadata that is not known": ("handshake", call("add", _meta={"com.example/x": "1"})),
    "a trace that is no text": ("handshake", call("add", _meta={"traceparent": 1})),
    "a modern trace that is no text": ("modern", enveloped(ADDING, traceparent=["00"])),
    "a progress token that is true": ("handshake", call("add", _meta={"progressToken": True})),
    "a progress token that is null": ("handshake", call("add", _meta={"progressToken": None})),
    "a ping with parameters": ("handshake", request("ping", {"x": 1})),
    "a page of resources": ("handshake", request("resources/list", {"cursor": "x"})),
    "another method": ("handshake", request("logging/setLevel", {"level": "info"})),
    "an opening where one has been": ("handshake", initialize()),
    "no parameters": ("modern", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    "no envelope": ("modern", request("tools/list", {"cursor": None})),
    "an envelope that is no object": ("modern", call("add", _meta=["x"])),
    "no version": ("modern", enveloped(ADDING, version=None)),
    "a version of the other era": ("modern", enveloped(ADDING, version="2025-11-25")),
    "a version that is no text": ("modern", enveloped(ADDING, version={})),
    "no capabilities": ("modern", enveloped(ADDING, capabilities=None)),
    "capabilities in a list": ("modern", enveloped(ADDING, capabilities=[])),
    "a capability that is no object": ("modern", enveloped(ADDING, capabilities={"sampling": True})),
    "a detail of a capability": ("modern", enveloped(ADDING, capabilities={"experimental": {"x": 1}})),
    "a client without a version": ("modern", enveloped(ADDING, client={"name": "n"})),
    "a client with icons": ("modern", enveloped(ADDING, client=CLIENT_INFO | {"icons": []})),
    "a client whose title is a number": ("modern", enveloped(ADDING, client=CLIENT_INFO | {"title": 1})),
    "a modern progress token that is a fraction": ("modern", enveloped(ADDING, progressToken=1.5)),
    "a wish for log messages of no severity": ("modern", enveloped(ADDING, **{LOG_LEVEL_KEY: "loud"})),
    "a modern ping, which is gone": ("modern", enveloped(request("ping"))),
    "a discovery of something": ("modern", enveloped(request("server/discover", {"x": 1}))),
    "a subscription": ("modern", enveloped(request("subscriptions/listen", {"notifications": {}}))),
    "an opening without parameters": ("initialize", {"jsonrpc": "2.0", "id": 1, "method": "initialize"}),
    "an opening with metadata": ("initialize", initialize() | {"params": initialize()["params"] | {"_meta": {}}}),
    "an opening without a client": ("initialize", request("initialize", {"protocolVersion": "1", "capabilities": {}})),
    "an opening of no version": (
        "initialize",
        initialize() | {"params": initialize()["params"] | {"protocolVersion": 1}},
    ),
}


@pytest.mark.parametrize(("opening", "message"), PLAIN.values(), ids=PLAIN)
def test_what_is_plain_is_answered_or_is_a_call(plans: FastPath, opening: str, message: dict[str, Any]) -> None:
    plan = getattr(plans, opening)(message)
    if message["method"] == "tools/call":
        is_modern = opening == "modern"
        assert isinstance(plan, PlainRequest)
        assert (plan.id, plan.params, plan.modern) == (message["id"], message["params"], is_modern)
        assert plan.version == ("2026-07-28" if is_modern else "")
        assert plan.capabilities == (message["params"]["_meta"][CAPABILITIES_KEY] if is_modern else {})
    else:
        assert json.loads(plan)["id"] == message["id"]


@pytest.mark.parametrize(("opening", "message"), HANDED_OVER.values(), ids=HANDED_OVER)
def test_what_cannot_be_proven_plain_is_handed_over(plans: FastPath, opening: str, message: dict[str, Any]) -> None:
    assert getattr(plans, opening)(message) is None


def test_the_tables_cover_every_envelope_after_a_plain_one(plans: FastPath) -> None:
    # A plain envelope is cached: one that only resembles it must not be taken for it.
    assert plans.modern(enveloped(ADDING)) is not None
    for message in (message for opening, message in HANDED_OVER.values() if opening == "modern"):
        assert plans.modern(message) is None


@pytest.mark.parametrize("look_alike", [True, 1.0])
def test_a_token_that_equals_a_remembered_one_is_judged_by_itself(plans: FastPath, look_alike: object) -> None:
    assert plans.modern(enveloped(ADDING, progressToken=1)) is not None
    assert plans.modern(enveloped(ADDING, progressToken=look_alike)) is None


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
def test_a_policy_that_may_talk_back_leaves_everything_to_the_sdk(policy: ExecutionPolicy) -> None:
    plans = FastPath(published(ADD, policy=policy))
    for opening, message in PLAIN.values():
        assert getattr(plans, opening)(message) is None


@pytest.mark.parametrize(
    ("requested", "agreed"), [("2024-11-05", "2024-11-05"), ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25")]
)
def test_an_opening_agrees_on_the_version_asked_for_or_on_the_latest(requested: str, agreed: str) -> None:
    plans = FastPath(published(ADD, title="Tests", instructions="Add."))
    params = initialize()["params"] | {"protocolVersion": requested}
    plan = plans.initialize(request("initialize", params, "x"))
    assert plan is not None
    assert json.loads(plan) == {
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
    publisher = published(ADD)
    plans = FastPath(publisher)

    def listed(opening: str) -> Any:
        plan = getattr(plans, opening)(
            enveloped(request("tools/list")) if opening == "modern" else request("tools/list")
        )
        return json.loads(plan)["result"]

    # What was written stays unchanged, even if its source is changed.
    first = listed("handshake"), listed("modern")
    publisher.catalog.page(modern=False)["tools"] = []
    assert (listed("handshake"), listed("modern")) == first
    assert first[1]["_meta"] == {SERVER_INFO_KEY: IMPLEMENTATION}
    assert [tool["name"] for tool in first[0]["tools"]] == ["add"]
    publisher.tools.add(GREET)
    for opening in ("handshake", "modern"):
        assert [tool["name"] for tool in listed(opening)["tools"]] == ["add", "greet"]


@pytest.mark.anyio
@pytest.mark.parametrize(("broken", "function"), [(ServerCore, "call"), (PlainCalls, "call_plain")])
@pytest.mark.parametrize("is_observed", [False, True])
async def test_an_unexpected_error_is_logged_and_answered_with_the_id(
    broken: type[object],
    function: str,
    is_observed: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    @tool
    async def plain() -> None:
        """Return None."""

    publisher, watched = published(*tools_from(plain), ADD), Watched(is_traced=False)
    monkeypatch.setattr(broken, function, fail)
    observed = partial(
        ObservedResponder, core=publisher, observer=watched.observer, transport="http", caller=lambda: None
    )
    plans = FastPath(publisher, observed if is_observed else None)
    planned = plans.modern(enveloped(ADDING if broken is ServerCore else call("plain")))
    assert isinstance(planned, PlainRequest)
    responder = planned.responder
    running = responder.run(planned, InvocationContext()) if broken is ServerCore else responder.call_plain(planned, "")
    answer, code = await running
    error = {"code": code, "message": "the request 'tools/call' failed; the server's log says why"}
    assert (json.loads(answer), code) == ({"jsonrpc": "2.0", "id": 1, "error": error}, -32603)
    assert "a secret" in caplog.text
    assert len(watched.records) == is_observed


def test_a_tool_that_comes_or_goes_is_seen_by_the_next_call() -> None:
    publisher = published(ADD)
    plans = FastPath(publisher)
    assert plans.handshake(call("mirrored")) is None
    publisher.tools.replace([silent("mirrored", _add)])
    assert plans.handshake(call("mirrored")) is not None
    assert plans.handshake(ADDING) is None
    publisher.tools.replace([MIRRORED])
    assert plans.handshake(call("mirrored")) is None


def test_an_answer_carries_an_id_of_any_size_and_spelling() -> None:
    for id_ in (0, -1, 10**400, "", "7", 'a "quoted" \\ id'):
        assert json.loads(result_message(id_, b"{}")) == {"jsonrpc": "2.0", "id": id_, "result": {}}
        assert json.loads(error_message(id_, {"code": 1}))["id"] == id_
