from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.messages import (
    MalformedMessageError,
    id_of_request,
    is_request,
    malformed_message_error,
    read_message,
)

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
_parts = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "message"])


@given(text=st.binary() | st.text().map(str.encode))
def test_no_text_is_more_than_malformed(text: bytes) -> None:
    with suppress(MalformedMessageError):
        read_message(text)


@given(message=st.dictionaries(_parts, _json | st.just("2.0") | st.dictionaries(_parts, _json)))
def test_what_is_read_has_the_shape_of_a_message(message: dict[str, Any]) -> None:
    try:
        read = read_message(json.dumps(message).encode())
    except MalformedMessageError:
        return
    assert read is not None
    if is_request(read):
        assert isinstance(read["id"], int | str)
        assert not isinstance(read["id"], bool)
    if "method" in read:
        assert isinstance(read["method"], str)
        assert isinstance(read.get("params"), dict | None)
    elif "error" in read:
        assert isinstance(read["error"]["code"], int)
        assert isinstance(read["error"]["message"], str)
    else:
        assert isinstance(read["result"], dict)


@given(message_id=st.integers() | st.text(), method=st.text(), params=st.dictionaries(st.text(), _json))
def test_every_request_is_read_as_it_was_written(message_id: int | str, method: str, params: dict[str, Any]) -> None:
    request = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
    read = read_message(json.dumps(request).encode())
    # As text, because NaN equals nothing.
    assert json.dumps(read, sort_keys=True) == json.dumps(request, sort_keys=True)


@pytest.mark.parametrize("text", [b"", b" ", b"\t\r"])
def test_blank_text_is_no_message(text: bytes) -> None:
    assert read_message(text) is None


def test_an_error_answers_the_request_that_it_knows_and_no_other() -> None:
    known = MalformedMessageError(-32602, "'params' must be an object", "ü")
    assert json.loads(malformed_message_error(known)) == {
        "jsonrpc": "2.0",
        "id": "ü",
        "error": {"code": -32602, "message": "'params' must be an object"},
    }
    assert json.loads(malformed_message_error(MalformedMessageError(-32700, "what?")))["id"] is None


LONG = "x" * 2000
BY_ID_FIRST = {"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"a": LONG}}
BY_ID_LAST = {
    "method": "m",
    "params": {"id": 1, "a": {"id": 2, "b": LONG + '","id":3}'}},
    "id": 'a"7',
    "jsonrpc": "2.0",
}


@pytest.mark.parametrize(
    ("message", "message_id"),
    [
        (BY_ID_FIRST, 7),
        (BY_ID_FIRST | {"id": "seven"}, "seven"),
        (BY_ID_FIRST | {"id": None}, None),
        (BY_ID_LAST, 'a"7'),
        ({"method": "m", "params": {"a": LONG}, "id": -3}, -3),
        ({"params": {"a": LONG}, "id": 3, "jsonrpc": "2.0", "method": "m"}, 3),
        ({"method": "m", "params": {"a": LONG, "id": 3}}, None),
        ({"method": "m", "params": {"a": LONG, "b": '"id":3'}}, None),
        ({"method": "m", "a": LONG + ',"id":3}'}, None),
        ({"id": 7, "result": {"a": LONG}}, None),
        ({"id": 7, "method": LONG}, None),
        ({"id": LONG, "method": "m"}, None),
        ([LONG], None),
        (LONG, None),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", " : ")])
def test_a_request_is_known_by_the_ends_of_its_text(message: Any, message_id: Any, separators: tuple[str, str]) -> None:
    text = json.dumps(message, separators=separators).encode()
    assert id_of_request(text[:300], text[-300:]) == message_id


def test_an_id_that_the_beginning_breaks_off_is_not_taken_for_a_whole_one() -> None:
    assert id_of_request(b'{"id":12', b"") is None
    assert id_of_request(b"no JSON", b',"id":1}') is None


@given(st.binary(), st.binary())
def test_the_ends_of_any_text_name_a_request_or_none(beginning: bytes, end: bytes) -> None:
    assert isinstance(id_of_request(beginning, end + b',"id":"x"}'), int | str | None)
