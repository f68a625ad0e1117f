"""Requests: parsed once, immutable, with the model's text beside them."""

from __future__ import annotations

import copy
import json
import pickle
from types import MappingProxyType
from typing import Any

import pytest

from bridge.errors import ArgumentsError
from bridge.tools.tool import ToolExecutionRequest

TEXT = '```json\n{"city": "Rome", "days": [1, {"two": 2}],}\n```'
DATA: dict[str, Any] = {"city": "Rome", "days": [1, {"two": 2}]}


@pytest.mark.parametrize("given", [TEXT, DATA, MappingProxyType(DATA)])
def test_parsed_arguments_equal_plain_data_of_any_provider(given: Any) -> None:
    parsed = ToolExecutionRequest("forecast", given, "1").parsed()
    assert parsed == ToolExecutionRequest("forecast", DATA, "1")
    assert parsed.arguments_text == (TEXT if given == TEXT else None)
    assert parsed.parsed() is parsed
    assert json.loads(json.dumps(parsed.arguments)) == DATA
    for duplicate in (copy.deepcopy(parsed), pickle.loads(pickle.dumps(parsed)), copy.copy(parsed)):
        assert (duplicate, duplicate.arguments_text) == (parsed, parsed.arguments_text)


@pytest.mark.parametrize(
    "change",
    [
        lambda arguments: arguments.update(city="Oslo"),
        lambda arguments: arguments.pop("city"),
        lambda arguments: arguments.__setitem__("city", "Oslo"),
        lambda arguments: arguments.__ior__({"city": "Oslo"}),
        lambda arguments: arguments["days"].append(3),
        lambda arguments: arguments["days"].sort(),
        lambda arguments: arguments["days"].__iadd__([3]),
        lambda arguments: arguments["days"][1].clear(),
    ],
)
def test_parsed_arguments_cannot_be_changed_at_any_depth(change: Any) -> None:
    given = copy.deepcopy(DATA)
    parsed = ToolExecutionRequest("forecast", given).parsed()
    with pytest.raises(TypeError, match=r"cannot be changed; change a copy: (dict|list)\(…\)"):
        change(parsed.arguments)
    given["city"] = "Oslo"
    given["days"].append(3)
    assert parsed.arguments == DATA


def test_one_argument_is_read_from_text_and_from_data() -> None:
    for given in (TEXT, DATA):
        request = ToolExecutionRequest("forecast", given)
        assert (request.argument("city"), request.argument("country")) == ("Rome", None)


def test_what_is_no_object_or_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    requests = [ToolExecutionRequest("forecast", "[1]"), ToolExecutionRequest("forecast", {"deep": deep})]
    for request, expected in zip(requests, ("should be a JSON object", "nested less deeply"), strict=True):
        with pytest.raises(ArgumentsError, match=expected):
            request.parsed()
