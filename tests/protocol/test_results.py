"""Results of servers are accepted and refused as by the official SDK, in both eras."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from bridge.protocol.results import LATER_MEMBERS, InvalidResultError, reason_of, valid_result
from bridge.protocol.versions import HANDSHAKE_VERSIONS, LATEST_MODERN_VERSION

ABOUT: dict[str, Any] = {
    "title": "t",
    "description": "d",
    "icons": [{"src": "s", "mimeType": "m", "sizes": ["1x1"], "theme": "dark"}],
    "_meta": {"a": 1},
}
LABELS: dict[str, Any] = {
    "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "x"},
    "_meta": {"a": 1},
}
TEXT = {"uri": "a:b", "text": "t", "mimeType": "m", "_meta": {}}
BLOB = {"uri": "a:b", "blob": "AA=="}
BLOCKS = [
    {"type": "text", "text": "t", **LABELS},
    {"type": "image", "data": "AA==", "mimeType": "m"},
    {"type": "audio", "data": "AA==", "mimeType": "m", **LABELS},
    {"type": "resource_link", "uri": "a:b", "name": "n", "size": 3, "mimeType": "m", **ABOUT, **LABELS},
    {"type": "resource", "resource": TEXT, **LABELS},
    {"type": "resource", "resource": BLOB},
]
TOOL = {
    "name": "n",
    "inputSchema": {"type": "object", "$schema": "s", "properties": {"a": {}, "b": True}, "required": ["a"]},
    "outputSchema": {"type": "object", "properties": {}},
    "annotations": {"title": "t", "readOnlyHint": True, "openWorldHint": None},
    **ABOUT,
}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": None},
    "prompts": {},
    "logging": {},
    "completions": {},
    "experimental": {"x": {}},
}
RESULTS: dict[str, dict[str, Any]] = {
    "tools/call": {"content": BLOCKS, "isError": False, "structuredContent": {"a": 1}, "_meta": {}},
    "resources/read": {"contents": [TEXT, BLOB]},
    "prompts/get": {"messages": [{"role": "user", "content": each} for each in BLOCKS], "description": "d"},
    "completion/complete": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
    "tools/list": {"tools": [TOOL], "nextCursor": "c"},
    "resources/list": {"resources": [{"uri": "a:b", "name": "n", "size": 1, "mimeType": "m", **ABOUT, **LABELS}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "n", **ABOUT, **LABELS}]},
    "prompts/list": {"prompts": [{"name": "n", "arguments": [{"name": "a", "required": True, "title": "t"}], **ABOUT}]},
}
OPENINGS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "n", "version": "1", "websiteUrl": "w", **ABOUT},
        "instructions": "i",
    },
    "server/discover": {
        "supportedVersions": [LATEST_MODERN_VERSION],
        "capabilities": {**CAPABILITIES, "extensions": {"x/y": {}}},
        "instructions": "i",
    },
}
STAMP = {"resultType": "complete", "ttlMs": 5, "cacheScope": "private"}
ODD = [None, True, 0, -1, 1.5, "text", "", [], {}, [1], {"a": 1}, ["user"], "object"]
ASKING = {"tools/call", "resources/read", "prompts/get"}
MUTATIONS = 400


def spoiled(random: Random, value: Any) -> Any:
    """Return a value with one odd part: another value, a member too few, or one too many."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        chance = random.random()
        if chance < 0.15:
            return {name: each for name, each in value.items() if name != key}
        if chance < 0.25:
            return {**value, "other": random.choice(ODD)}
        return {**value, key: spoiled(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], spoiled(random, value[place]), *value[place + 1 :]]
    return random.choice(ODD)


def is_accepted_by_the_sdk(method: str, version: str, result: dict[str, Any]) -> bool:
    try:
        validate_server_result(method, version, result)
    except ValidationError:
        return False
    return True


def problem_of(method: str, version: str, result: dict[str, Any]) -> str | None:
    try:
        valid_result(method, version, result)
    except InvalidResultError as error:
        return reason_of(error)
    return None


@pytest.mark.parametrize("version", ["2025-11-25", LATEST_MODERN_VERSION])
@pytest.mark.parametrize("method", RESULTS | OPENINGS)
def test_a_result_is_accepted_as_by_the_sdk(method: str, version: str) -> None:
    if (method == "initialize") == (version == LATEST_MODERN_VERSION):
        pytest.skip("the version does not have the method")
    if method == "server/discover" and version != LATEST_MODERN_VERSION:
        pytest.skip("the version does not have the method")
    result = (RESULTS | OPENINGS)[method] | (STAMP if version == LATEST_MODERN_VERSION else {})
    assert valid_result(method, version, result) == result
    random = Random(method)
    for _ in range(MUTATIONS):
        wrong = spoiled(random, deepcopy(result))
        if not isinstance(wrong, dict):
            continue
        at_least_zero = {**wrong, "ttlMs": 0} if wrong.get("ttlMs") == -1 else wrong
        is_accepted = is_accepted_by_the_sdk(method, version, at_least_zero)
        problem = problem_of(method, version, wrong)
        if is_accepted and method in ASKING and version == LATEST_MODERN_VERSION:
            continue  # the SDK also takes any such result for a question without questions
        assert (problem is None) is is_accepted, (wrong, problem)


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_members_of_a_later_version_are_removed(version: str) -> None:
    later = {"resultType": "complete", "ttlMs": -1, "cacheScope": "nonsense", "requestState": 5}
    assert later.keys() < LATER_MEMBERS
    result = {"content": [], "own": 1}
    assert valid_result("tools/call", version, {**result, **later}) == result


def test_a_time_to_live_below_zero_is_zero() -> None:
    result = {"contents": [], **STAMP, "ttlMs": -7}
    assert valid_result("resources/read", LATEST_MODERN_VERSION, result)["ttlMs"] == 0


@pytest.mark.parametrize("kind", ["input_required", "task", "later"])
def test_a_result_of_another_type_needs_no_content(kind: str) -> None:
    result = {"resultType": kind, "taskId": "t", "requestState": "s"}
    assert valid_result("tools/call", LATEST_MODERN_VERSION, result) == result


def test_the_reason_names_the_place_and_not_the_value() -> None:
    with pytest.raises(InvalidResultError) as caught:
        valid_result("tools/call", "2025-11-25", {"content": [{"type": "text", "text": ["secret"]}]})
    assert reason_of(caught.value) == "content.0.text.text: Input should be a valid string"
