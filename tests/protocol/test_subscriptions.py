"""Subscriptions: filters, the messages of one, and what waits to be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import SubscriptionFilter

from bridge.protocol.messages import ProtocolError
from bridge.protocol.subscriptions import Filter, Subscription, Waiting, change_message
from bridge.protocol.versions import INVALID_PARAMS

if TYPE_CHECKING:
    from bridge.types import Feature

FLAGS = st.none() | st.booleans()
TEXTS = st.none() | st.lists(st.text())
WANTED = st.fixed_dictionaries(
    {},
    optional={
        "toolsListChanged": FLAGS,
        "promptsListChanged": FLAGS,
        "resourcesListChanged": FLAGS,
        "resourceSubscriptions": TEXTS,
        "taskIds": TEXTS,
        "other": st.integers(),
    },
)


@given(WANTED)
def test_a_filter_is_read_as_by_the_sdk(wanted: dict[str, Any]) -> None:
    read, expected = Filter.read({"notifications": wanted}), SubscriptionFilter.model_validate(wanted)
    assert ("tools" in read.lists) is bool(expected.tools_list_changed)
    assert ("prompts" in read.lists) is bool(expected.prompts_list_changed)
    assert ("resources" in read.lists) is bool(expected.resources_list_changed)
    assert read.uris == tuple(dict.fromkeys(expected.resource_subscriptions or ()))
    assert read.task_ids == tuple(dict.fromkeys(wanted.get("taskIds") or ()))


@given(WANTED)
def test_a_filter_is_written_as_it_is_read(wanted: dict[str, Any]) -> None:
    read = Filter.read({"notifications": wanted})
    wire = read.to_wire()
    assert Filter.read({"notifications": wire}) == read
    assert all(wire.values())


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({}, "'notifications' must be an object"),
        ({"notifications": None}, "'notifications' must be an object"),
        ({"notifications": ["toolsListChanged"]}, "'notifications' must be an object"),
        ({"notifications": {"toolsListChanged": 1}}, "'toolsListChanged' must be true or false"),
        ({"notifications": {"resourcesListChanged": "true"}}, "'resourcesListChanged' must be true or false"),
        ({"notifications": {"resourceSubscriptions": "a"}}, "'resourceSubscriptions' must be a list of texts"),
        ({"notifications": {"resourceSubscriptions": {}}}, "'resourceSubscriptions' must be a list of texts"),
        ({"notifications": {"resourceSubscriptions": False}}, "'resourceSubscriptions' must be a list of texts"),
        ({"notifications": {"resourceSubscriptions": [1]}}, "'resourceSubscriptions' must be a list of texts"),
        ({"notifications": {"taskIds": "a"}}, "'taskIds' must be a list of texts"),
        ({"notifications": {"taskIds": ["a", None]}}, "'taskIds' must be a list of texts"),
    ],
)
def test_a_malformed_filter_is_refused(params: dict[str, Any], problem: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        Filter.read(params)
    assert (refused.value.code, refused.value.message) == (INVALID_PARAMS, f"Invalid request parameters: {problem}")


def test_a_filter_has_lists_and_resources() -> None:
    wanted = Filter(frozenset({"tools"}), ("a://b",))
    assert wanted.has("tools", None)
    assert not wanted.has("prompts", None)
    assert wanted.has("resources", "a://b")
    assert not wanted.has("resources", "a://c")
    assert not wanted.has("resources", None)


@pytest.mark.parametrize(
    ("message_id", "written"), [(7, b"7"), ("7", b'"7"'), ("ü", '"ü"'.encode()), ("\ud800", b'"\\ud800"')]
)
def test_messages_have_the_id_of_the_subscription(message_id: int | str, written: bytes) -> None:
    subscription = Subscription(message_id)
    meta = b'"_meta":{"io.modelcontextprotocol/subscriptionId":%b}' % written
    notification = b'{"jsonrpc":"2.0","method":"notifications/%b","params":{%b%b}}'
    honoured = Filter(frozenset({"prompts", "tools"}), ("a://b",), ("t",))
    wire = b'{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a://b"],"taskIds":["t"]}'
    for text, method, members in [
        (subscription.acknowledged(honoured), b"subscriptions/acknowledged", b'"notifications":%b,' % wire),
        (subscription.acknowledged(Filter()), b"subscriptions/acknowledged", b'"notifications":{},'),
        (subscription.changed("tools", None), b"tools/list_changed", b""),
        (subscription.changed("resources", "a://b"), b"resources/updated", b'"uri":"a://b",'),
        (subscription.notification("notifications/tasks", {"taskId": "t"}), b"tasks", b'"taskId":"t",'),
    ]:
        assert text == notification % (method, members, meta)


@pytest.mark.parametrize(
    ("feature", "uri", "message"),
    [
        ("tools", None, ("notifications/tools/list_changed", {})),
        ("resources", None, ("notifications/resources/list_changed", {})),
        ("resources", "a://b", ("notifications/resources/updated", {"uri": "a://b"})),
    ],
)
def test_a_change_has_a_message(feature: Feature, uri: str | None, message: tuple[str, dict[str, str]]) -> None:
    assert change_message(feature, uri) == message


# --- what waits ------------------------------------------------------------------------------------------------------


def test_what_waits_is_taken_in_order_and_once() -> None:
    waiting = Waiting()
    assert not waiting
    assert waiting.take() is None
    waiting.put(["a", "b"])
    waiting.put(["c", "a"])
    assert waiting
    assert [waiting.take() for _ in range(4)] == ["a", "b", "c", None]
    waiting.put(["a"])
    assert waiting.take() == "a"
    assert not waiting


@given(st.lists(st.lists(st.integers(0, 4)) | st.just(None)))
def test_no_more_waits_than_differs(steps: list[list[int] | None]) -> None:
    waiting, expected = Waiting(), list[int]()
    for items in steps:
        if items is None:
            assert waiting.take() == (expected.pop(0) if expected else None)
        else:
            waiting.put(items)
            expected = list(dict.fromkeys([*expected, *items]))
        assert bool(waiting) is bool(expected)
    left = [waiting.take() for _ in range(5)]  # each of the five items once at most
    assert left == expected + [None] * (5 - len(expected))
    assert not waiting
