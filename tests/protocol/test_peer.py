"""Requests to the other side: bytes in, bytes out, in both eras."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from mcp_types import jsonrpc_message_adapter
from pydantic_core import from_json

from bridge.protocol.messages import ProtocolError, answer, notification
from bridge.protocol.peer import Peer, PeerLostError, PendingRequest, cancellation
from bridge.protocol.results import InvalidResultError
from bridge.protocol.versions import CAPABILITIES_KEY, LATEST_MODERN_VERSION, PROTOCOL_VERSION_KEY

ERAS = pytest.mark.parametrize("version", ["2025-11-25", LATEST_MODERN_VERSION])
DONE = {"content": [], "resultType": "complete"}


def json_parser(text: bytes, *, is_standard: bool) -> Any:
    return from_json(text, allow_inf_nan=not is_standard)


class Side:
    """A peer, and all that came from the other side."""

    def __init__(self, version: str = "2025-11-25") -> None:
        self.requests: list[Any] = []
        self.notifications: list[Any] = []
        self.malformed: list[Any] = []
        self.late: list[Any] = []
        self.peer = Peer(
            json_parser,
            lambda message, _: self.requests.append(message),
            lambda message, _: self.notifications.append(message),
            self.malformed.append,
            self.late.append,
        )
        stamps = {PROTOCOL_VERSION_KEY: version, CAPABILITIES_KEY: {}} if version == LATEST_MODERN_VERSION else {}
        self.peer.use(version, stamps)

    def sent(self, method: str = "tools/call", **params: Any) -> PendingRequest:
        request = PendingRequest()
        self.peer.write(request, method, params)
        return request

    def receive(self, message: Any, of: PendingRequest | None = None) -> None:
        self.peer.receive(json.dumps({"jsonrpc": "2.0", **message}).encode(), of)


@ERAS
def test_a_request_is_a_message_with_the_stamps_of_its_era(version: str) -> None:
    side, request = Side(version), PendingRequest()
    request.on_progress = lambda *_: None
    arguments = {"a": None, "b": ["ü", 1.5, "%d"]}
    params = {"name": "größe %", "arguments": arguments, "_meta": {"x/y": 1, "progressToken": "foreign"}}
    side.peer.write(request, "tools/call", params, meta={"traceparent": "00"})
    message = json.loads(request.text)
    stamps = {PROTOCOL_VERSION_KEY: version, CAPABILITIES_KEY: {}} if version == LATEST_MODERN_VERSION else {}
    meta = {"x/y": 1, "traceparent": "00", "progressToken": request.id, **stamps}
    params = {"name": "größe %", "arguments": arguments, "_meta": meta}
    assert message == {"jsonrpc": "2.0", "id": request.id, "method": "tools/call", "params": params}
    jsonrpc_message_adapter.validate_json(request.text)


@ERAS
def test_the_template_of_a_call_gives_the_same_as_writing_it(version: str) -> None:
    side, texts = Side(version), []
    for arguments in (b'{"a":1}', None):
        request = PendingRequest()
        request.on_progress = lambda *_: None
        side.peer.write(request, "tools/call", {"name": "100 %d", "arguments": {"a": 1}}, arguments=arguments)
        message = json.loads(request.text)
        assert message.pop("id") == message["params"]["_meta"].pop("progressToken") == request.id
        texts.append(message)
    assert texts[0] == texts[1]


def test_capabilities_of_another_client_take_the_place_of_ones_own() -> None:
    for version, expected in (("2025-11-25", None), (LATEST_MODERN_VERSION, {"roots": {}})):
        side, request = Side(version), PendingRequest()
        side.peer.write(request, "tools/call", {"name": "x"}, capabilities={"roots": {}})
        assert json.loads(request.text)["params"].get("_meta", {}).get(CAPABILITIES_KEY) == expected


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize(
    "form",
    [
        '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}',
        '{"result":{"content":[]},"jsonrpc":"2.0","id":1}',
        ' {"id": "1", "result": {"content": []}, "jsonrpc": "2.0", "method": null}',
    ],
)
def test_a_result_is_found_in_any_form(form: str, is_own: bool) -> None:
    side = Side()
    request = side.sent(name="add")
    kept: list[bytes | None] = []

    def keep(result: Any, text: bytes | None) -> Any:
        kept.append(text)
        return {**result, "kept": True}

    request.keep = keep
    side.peer.receive(form.encode(), request if is_own else None)
    assert (request.is_over, request.result, side.peer.pending) == (True, {"content": [], "kept": True}, {})
    assert kept == [b'{"content":[]}' if form.startswith("{") else None]


def test_an_error_a_result_of_another_form_and_a_lost_connection_are_errors() -> None:
    side = Side()
    refused, wrong, lost = side.sent(name="a"), side.sent(name="b"), side.sent(name="c")
    side.receive({"id": refused.id, "error": {"code": 7, "message": "no", "data": [1]}})
    side.receive({"id": wrong.id, "result": {"content": 5}})
    side.peer.fail(PeerLostError("gone"))
    assert isinstance(refused.error, ProtocolError)
    assert (refused.error.code, refused.error.message, refused.error.data) == (7, "no", [1])
    assert isinstance(wrong.error, InvalidResultError)
    assert isinstance(lost.error, PeerLostError)


def test_an_error_without_an_id_is_that_of_the_request_on_whose_stream_it_is() -> None:
    side = Side()
    request = side.sent(name="a")
    side.receive({"id": None, "error": {"code": -32700, "message": "?"}})
    assert not request.is_over
    side.receive({"id": None, "error": {"code": -32700, "message": "?"}}, request)
    assert isinstance(request.error, ProtocolError)


def test_progress_reaches_its_request_until_the_outcome() -> None:
    side, request = Side(), PendingRequest()
    seen: list[Any] = []
    request.on_progress = lambda *progress: seen.append(progress)
    side.peer.write(request, "tools/call", {"name": "x"})
    for params in (
        {"progress": 1, "total": 2, "message": "half"},
        {"progress": 1.5, "total": 10**400, "message": 5},
        {"progress": "much"},
        {"progress": 10**400},
    ):
        side.receive({"method": "notifications/progress", "params": {"progressToken": request.id, **params}})
    side.receive({"method": "notifications/progress", "params": {"progressToken": "other", "progress": 3}})
    side.receive({"method": "notifications/progress"})
    side.receive({"id": request.id, "result": DONE})
    side.receive({"method": "notifications/progress", "params": {"progressToken": request.id, "progress": 4}})
    assert seen == [(1.0, 2.0, "half"), (1.5, None, None)]
    assert len(side.malformed) == 3


def test_notifications_of_a_subscription_reach_its_request_and_others_the_session() -> None:
    side, request = Side(LATEST_MODERN_VERSION), PendingRequest()
    seen: list[Any] = []
    request.on_notification = lambda message: seen.append(message["method"])
    side.peer.write(request, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    of_it = {"_meta": {"io.modelcontextprotocol/subscriptionId": request.id}}
    side.receive({"method": "notifications/subscriptions/acknowledged", "params": {**of_it, "notifications": {}}})
    side.receive({"method": "notifications/tools/list_changed", "params": of_it})
    side.receive({"method": "notifications/tools/list_changed"}, request)  # on its own stream
    side.receive({"method": "notifications/tools/list_changed"})
    assert seen == ["notifications/subscriptions/acknowledged", *["notifications/tools/list_changed"] * 2]
    assert [each["method"] for each in side.notifications] == ["notifications/tools/list_changed"]
    side.receive({"method": "notifications/cancelled", "params": {"requestId": request.id}})
    assert isinstance(request.error, PeerLostError)


def test_messages_of_the_other_side() -> None:
    side = Side()
    asked = {"id": "q", "method": "roots/list", "params": {}}
    side.receive(asked)
    side.receive({"method": "notifications/message", "params": {"level": "info", "data": 1}})
    assert side.requests == [{"jsonrpc": "2.0", **asked}]
    assert [each["method"] for each in side.notifications] == ["notifications/message"]
    assert json.loads(answer("q", {"roots": []})) == {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}}
    error = json.loads(answer("q", ProtocolError(-32601, "no", {"a": 1})))["error"]
    assert error == {"code": -32601, "message": "no", "data": {"a": 1}}
    assert json.loads(notification("notifications/initialized")) == {
        "jsonrpc": "2.0",
        "method": "notifications/initialized",
    }
    request = side.sent(name="x")
    assert json.loads(cancellation(request))["params"]["requestId"] == request.id


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "5", '"a"', '{"jsonrpc":"2.0"}', '{"jsonrpc":"1.0","id":1,"result":{}}'),
        *('{"jsonrpc":"2.0","id":true,"result":{}}', '{"jsonrpc":"2.0","id":1,"result":5}'),
        *('{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}', '{"jsonrpc":"2.0","id":1,"error":null}'),
        *('{"jsonrpc":"2.0","method":"x","params":[]}', '{"jsonrpc":"2.0","method":5}'),
        *('{"jsonrpc":"2.0","id":1.5,"method":"x"}', '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}'),
    ],
)
def test_what_is_no_message_is_refused(text: str) -> None:
    side = Side()
    request = side.sent(name="x")
    for of in (None, request):
        with pytest.raises(ValueError, match=r"."):
            side.peer.receive(text.encode(), of)
    assert not request.is_over


def test_later_work_is_kept_in_its_order_and_told_at_once() -> None:
    request, changes = PendingRequest(), []
    request.on_change = lambda: changes.append(len(request.work))

    async def work() -> None:
        """Do nothing."""

    request.defer(work)
    request.defer(work)
    request.settle({})
    request.fail(PeerLostError("too late"))
    assert (changes, request.result, request.error) == ([1, 2, 2], {}, None)


class Conversation(RuleBasedStateMachine):
    """Requests, and their outcomes in any order and form, over one stream or over streams of their own."""

    under_way: Bundle[PendingRequest] = Bundle("under_way")

    @initialize(version=st.sampled_from(["2025-11-25", LATEST_MODERN_VERSION]))
    def open(self, version: str) -> None:
        self.side = Side(version)
        self.open_ids: set[int] = set()
        self.changes: dict[int, int] = {}
        self.outcomes = 0

    @rule(target=under_way, wants_progress=st.booleans())
    def send(self, wants_progress: bool) -> PendingRequest:
        request = PendingRequest()
        if wants_progress:
            request.on_progress = lambda *_: None
        self.side.peer.write(request, "tools/call", {"name": "x", "arguments": {}})
        self.changes[request.id] = 0

        def count() -> None:
            self.changes[request.id] += 1

        request.on_change = count
        assert request.id not in self.open_ids
        self.open_ids.add(request.id)
        return request

    @rule(request=consumes(under_way), is_own=st.booleans(), as_text=st.booleans(), is_error=st.booleans())
    def respond(self, request: PendingRequest, is_own: bool, as_text: bool, is_error: bool) -> None:
        if request.is_over:  # it was lost
            return
        outcome: Any = {"error": {"code": 1, "message": "m"}} if is_error else {"result": DONE}
        self.side.receive({"id": str(request.id) if as_text else request.id, **outcome}, request if is_own else None)
        assert isinstance(request.error, ProtocolError) is is_error
        assert (request.result is None) is is_error
        assert self.changes[request.id] == 1
        self.open_ids.discard(request.id)
        late = len(self.side.late)
        self.side.receive({"id": request.id, **outcome})
        assert len(self.side.late) == late + 1
        assert self.changes[request.id] == 1

    @rule(request=consumes(under_way))
    def abandon(self, request: PendingRequest) -> None:
        if request.is_over:
            return
        self.side.peer.discard(request)
        self.side.receive({"id": request.id, "result": DONE})
        assert not request.is_over
        self.open_ids.discard(request.id)

    @rule(request=under_way, foreign=st.integers(10_000, 20_000))
    def say_more(self, request: PendingRequest, foreign: int) -> None:
        if request.is_over:
            return
        for token in (request.id, foreign):
            self.side.receive({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        self.side.receive({"id": foreign, "result": DONE}, request)
        self.side.receive({"id": foreign, "method": "ping"}, request)
        assert not request.is_over

    @rule()
    def lose(self) -> None:
        lost = list(self.side.peer.pending.values())
        self.side.peer.fail(PeerLostError("gone"))
        assert all(isinstance(each.error, PeerLostError) for each in lost)
        for each in lost:
            self.side.peer.discard(each)
            self.open_ids.discard(each.id)

    @invariant()
    def what_is_under_way_is_pending(self) -> None:
        if hasattr(self, "side"):
            assert self.side.peer.pending.keys() == self.open_ids


TestConversation = Conversation.TestCase
