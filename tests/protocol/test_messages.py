"""Messages: what is read and refused, and responses that can always be written."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.messages import (
    MalformedMessageError,
    ProtocolError,
    answer,
    error_message,
    id_of_request,
    is_request,
    malformed_message_error,
    notification,
    read_message,
    result_beginning,
    result_message,
    write_json,
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


@pytest.mark.parametrize(
    "reply",
    [
        {"id": 7, "result": {}},
        {"id": "7", "result": {}, "error": None},
        {"id": 7, "error": {"code": -1, "message": "no"}},
        {"id": 7, "error": {"code": -1, "message": "no", "data": [1]}, "result": None},
        {"id": None, "error": {"code": -1, "message": "no"}},
        {"error": {"code": -1, "message": "no"}},
    ],
)
def test_a_reply_is_read(reply: dict[str, Any]) -> None:
    message = {"jsonrpc": "2.0", **reply}
    assert read_message(json.dumps(message).encode()) == message


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"id": 7},
        {"result": {}},
        {"id": None, "result": {}},
        {"id": True, "result": {}},
        {"id": 7.0, "result": {}},
        {"id": 7, "result": []},
        {"id": 7, "error": None},
        {"id": 7, "error": "no"},
        {"id": 7, "error": {"code": "-1", "message": "no"}},
        {"id": 7, "error": {"code": -1}},
        {"id": [], "error": {"code": -1, "message": "no"}},
        {"id": 7, "error": {"code": -1, "message": "no"}, "result": {}},
    ],
)
def test_what_is_no_reply_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessageError) as refused:
        read_message(json.dumps({"jsonrpc": "2.0", **reply}).encode())
    assert (refused.value.code, refused.value.message_id) == (-32600, None)
    assert refused.value.message == "a message must have a method, or be the reply to a request"


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        (b"[]", -32600, "batches are not supported"),
        (b"7", -32600, "a message must be an object"),
        (b'{"jsonrpc":"1.0","id":7,"method":"m"}', -32600, "'jsonrpc' must be \"2.0\""),
        (b'{"jsonrpc":"2.0","id":7,"method":8}', -32600, "'method' must be a string"),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', -32600, "'id' must be an integer or a string"),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, "'id' must be an integer or a string"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":[]}', -32602, "'params' must be an object"),
        (b"\xff", -32700, "the text is not UTF-8"),
        (b"[" * 100_000, -32700, "the JSON is nested too deeply"),
    ],
)
def test_a_malformed_message_is_explained(text: bytes, code: int, problem: str) -> None:
    with pytest.raises(MalformedMessageError) as refused:
        read_message(text)
    assert (refused.value.code, refused.value.message) == (code, problem)
    assert refused.value.message_id == (7 if code == -32602 else None)


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


# --- responses -------------------------------------------------------------------------------------------------------

_ids = st.integers() | st.text(st.characters())
_wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=10,
)
"""JSON values, with lone surrogates and numbers that are not finite."""


def finite(value: Any) -> Any:
    """Return a value as its JSON is read: numbers that are not finite are null."""
    return json.loads(json.dumps(value), parse_constant=lambda _: None)


@given(request=_ids, code=st.integers(), message=st.text(st.characters()), data=_wild)
def test_an_error_is_written_for_any_text(request: int | str, code: int, message: str, data: Any) -> None:
    error = {"code": code, "message": message} | ({} if data is None else {"data": finite(data)})
    written = answer(request, ProtocolError(code, message, data))
    assert json.loads(written) == {"jsonrpc": "2.0", "id": request, "error": error}
    assert read_message(written) == {"jsonrpc": "2.0", "id": request, "error": error}
    assert b"\n" not in written


@given(request=_ids, result=st.dictionaries(st.text(st.characters()), _wild))
def test_a_result_is_written_for_any_text(request: int | str, result: dict[str, Any]) -> None:
    response = {"jsonrpc": "2.0", "id": request, "result": finite(result)}
    assert json.loads(answer(request, result)) == response
    assert json.loads(result_message(request, b"{}")) == {**response, "result": {}}
    assert json.loads(result_beginning(request) + b"{}}") == {**response, "result": {}}


@given(method=st.text(st.characters()), params=st.none() | st.dictionaries(st.text(st.characters()), _wild))
def test_a_notification_is_written_for_any_text(method: str, params: dict[str, Any] | None) -> None:
    message = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": finite(params)})
    assert json.loads(notification(method, params)) == message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (result_message(7, b'{"a":1}'), b'{"jsonrpc":"2.0","id":7,"result":{"a":1}}'),
        (result_message("7", b"{}"), b'{"jsonrpc":"2.0","id":"7","result":{}}'),
        (result_message("ü", b"{}"), '{"jsonrpc":"2.0","id":"ü","result":{}}'.encode()),
        (result_message("\ud800", b"{}"), b'{"jsonrpc":"2.0","id":"\\ud800","result":{}}'),
        (result_beginning("\ud800"), b'{"jsonrpc":"2.0","id":"\\ud800","result":'),
        (
            error_message(7, {"code": -1, "message": "\ud800ü", "data": math.nan}),
            b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"\\ud800\\u00fc","data":null}}',
        ),
        (
            answer(7, ProtocolError(-1, "m", {"x": math.inf})),
            b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m","data":{"x":null}}}',
        ),
        (
            malformed_message_error(MalformedMessageError(-32602, "m", "\ud800")),
            b'{"jsonrpc":"2.0","id":"\\ud800","error":{"code":-32602,"message":"m"}}',
        ),
        (
            malformed_message_error(MalformedMessageError(-32700, "m")),
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}',
        ),
        (notification("notifications/a"), b'{"jsonrpc":"2.0","method":"notifications/a"}'),
        (
            notification("notifications/a", {"b": -math.inf}),
            b'{"jsonrpc":"2.0","method":"notifications/a","params":{"b":null}}',
        ),
    ],
)
def test_a_message_is_written(text: bytes, expected: bytes) -> None:
    assert text == expected


def test_a_value_that_cannot_be_written_is_refused() -> None:
    assert write_json({"a": [math.nan, 1.5]}) == b'{"a":[null,1.5]}'
    for value in ("\ud800", {"\udfff": 1}, object()):
        with pytest.raises(ValueError, match="serializ"):
            write_json(value)


def test_an_answer_carries_an_id_of_any_size_and_spelling() -> None:
    for id_ in (0, -1, 10**400, "", "7", 'a "quoted" \\ id'):
        assert json.loads(result_message(id_, b"{}")) == {"jsonrpc": "2.0", "id": id_, "result": {}}
        assert json.loads(error_message(id_, {"code": 1}))["id"] == id_
