"""Ids of events, by values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.replay import StreamPosition, event_id_of, order_of, outcome_unknown, position_of

NUMBERS = st.integers(min_value=0, max_value=2**64 - 1)
STREAMS = st.text(st.characters()).filter(lambda text: text != "_GET_stream")  # with lone surrogates


@pytest.mark.parametrize(
    ("event_id", "position"),
    [
        ("12-0/7", StreamPosition("12-0", "7")),
        ("12-0/a%20b%2F", StreamPosition("12-0", "a b/")),
        ("12-0/", StreamPosition("12-0", "")),
        ("0-0/_GET_stream", None),
        ("nonsense", None),
        ("", None),
        ("12-0", None),
        ("12/7", None),
        ("12-0/7\n", None),
        ("18446744073709551615-0/7", StreamPosition("18446744073709551615-0", "7")),
        ("18446744073709551616-0/7", None),
        ("0-18446744073709551616/7", None),
        ("٣-٣/7", None),
        ("12-0/%ED%A0%80", StreamPosition("12-0", "\ud800")),
        ("12-0/%F0%9F", None),
    ],
)
def test_the_id_of_an_event_is_parsed_or_refused(event_id: str, position: StreamPosition | None) -> None:
    assert position_of(event_id) == position


@given(milliseconds=NUMBERS, number=NUMBERS, stream=STREAMS)
def test_the_position_of_an_id_is_what_the_id_was_made_of(milliseconds: int, number: int, stream: str) -> None:
    entry = f"{milliseconds}-{number}"
    event_id = event_id_of(entry, stream)
    assert event_id.isascii()
    assert event_id.isprintable()
    assert position_of(event_id) == (entry, stream)
    assert order_of(entry) == (milliseconds, number)


@given(st.text() | st.from_regex(r"[0-9]{1,21}-[0-9]{1,21}/.*"))
def test_no_text_crashes_the_parser_of_ids(text: str) -> None:
    position = position_of(text)
    if position is not None:
        order_of(position.entry)
        assert position_of(event_id_of(*position)) == position


@given(st.integers(min_value=1 - 10**18, max_value=10**18 - 1) | st.text())
def test_an_unknown_outcome_has_the_id_of_its_request(request_id: int | str) -> None:
    message = json.loads(outcome_unknown(str(request_id), "it is lost"))
    of_number = isinstance(request_id, int) or (request_id == str(message["id"]) and isinstance(message["id"], int))
    assert message["id"] == (int(request_id) if of_number else request_id)
    assert message == {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "it is lost"}}


@pytest.mark.parametrize("text", ["", "007", "-0", "1.0", "+1", "٣", "1٣", "1 ", "9" * 19])
def test_a_text_that_no_number_has_stays_a_text(text: str) -> None:
    assert json.loads(outcome_unknown(text, "it is lost"))["id"] == text
