"""Results of other servers are passed on unchanged, and parsed only on access."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.tools.content import Text
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.received import SERVER_INFO_KEY
from bridge.wire.tools import ReceivedResult, result_from_wire, result_to_wire

SERVER = {SERVER_INFO_KEY: {"name": "behind", "version": "1"}}
BODY = '"content":[{"type":"text","text":"\\u00e9"}],"structuredContent":{"a":1.50,"b":1E2,"_meta":{}}'
TYPE = '"resultType":"complete"'
META = f'"_meta":{json.dumps(SERVER, separators=(",", ":"))}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["_meta", "a", '"']), inner, max_size=3)
    ),
    max_leaves=8,
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}), max_size=2)},
    optional={
        "isError": st.booleans(),
        "structuredContent": JSON,
        "resultType": st.just("complete"),
        "_meta": st.sampled_from([{}, SERVER, {**SERVER, "x/y": [1]}, {"x/y": None}]),
        "other": JSON,
    },
).flatmap(lambda result: st.permutations(sorted(result)).map(lambda keys: {key: result[key] for key in keys}))


def received(text: str) -> ReceivedResult:
    return ReceivedResult.of(json.loads(text), text.encode())


@pytest.mark.parametrize(
    "text", [f"{{{BODY}}}", f"{{{BODY},{TYPE},{META}}}", f"{{{META},{BODY}}}", f"{{{TYPE},{BODY},{META}}}"]
)
def test_the_text_of_a_result_is_passed_on_without_the_servers_name(text: str) -> None:
    result = result_to_wire(ToolExecutionResult.passing_on(received(text)))
    result["resultType"] = "complete"
    assert isinstance(result, ReceivedResult)
    assert result.written() == f"{{{BODY},{TYPE}}}".encode()


@pytest.mark.parametrize(
    "text", [f"{{{TYPE} ,{BODY},{META}}}", f"{{\n{BODY}\r\n}}", f'{{{BODY},"isError":false,"x":1}}']
)
def test_any_other_text_is_written_again_on_one_line(text: str) -> None:
    written = received(text).passed_on().written()
    assert b"1.50" not in written
    assert not {b"\n", b"\r"} & set(written)
    assert json.loads(written)["structuredContent"] == {"a": 1.5, "b": 100, "_meta": {}}


@given(result=RESULTS, indent=st.sampled_from([None, 1]), drops=st.booleans())
def test_what_is_passed_on_is_the_result(result: dict[str, Any], indent: int | None, *, drops: bool) -> None:
    text = json.dumps(result, indent=indent, separators=(",", ":") if indent is None else None, ensure_ascii=False)
    wire = received(text).passed_on()
    if drops and "structuredContent" in wire:
        del wire["structuredContent"]
        result = {key: value for key, value in result.items() if key != "structuredContent"}
    meta = {key: value for key, value in result.get("_meta", {}).items() if key != SERVER_INFO_KEY}
    expected = {key: result[key] for key in result if key in {"content", "isError", "structuredContent"}}
    assert json.loads(wire.written()) == (expected | {"_meta": meta} if meta else expected)
    assert b"\n" not in wire.written()


def test_a_result_that_is_passed_on_is_read_when_it_is_used() -> None:
    wire = json.loads(f'{{{BODY},"isError":true}}')
    passed = ToolExecutionResult.passing_on(received(json.dumps(wire)))
    assert passed == result_from_wire(wire)
    assert (passed.text, passed.is_error) == ("é", True)
    changed = replace(passed, content=(Text("other"),))
    assert changed.received is None
    assert result_to_wire(changed)["content"] == [{"type": "text", "text": "other"}]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = passed.nothing  # type: ignore[attr-defined]  # what is tested


def test_a_malformed_result_is_read_as_an_error() -> None:
    block = {"type": "image", "data": "no base64", "mimeType": "image/png"}
    passed = ToolExecutionResult.passing_on(ReceivedResult.of({"content": [block]}))
    assert passed.is_error
    assert passed.text.startswith("the server returned a malformed result: ")
