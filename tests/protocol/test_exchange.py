"""Exchanges: the progress and log messages that are written for a request."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.exchange import Exchange
from bridge.protocol.messages import ProtocolError
from bridge.protocol.session import Session
from bridge.protocol.versions import LATEST_MODERN_VERSION, LOG_LEVEL_KEY
from bridge.types import LOG_LEVELS

if TYPE_CHECKING:
    from bridge.types import LogLevel

ASKED = {"progressToken": 7}


def modern(meta: Any = None, message_id: int | str = 1) -> Exchange:
    params = {} if meta is None else {"_meta": meta}
    return Exchange(message_id, "tools/call", params, LATEST_MODERN_VERSION, True, {})


def in_session(session: Session | None) -> Exchange:
    return Exchange(1, "tools/call", {}, "2025-11-25", False, {}, session)


# --- progress --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "reported", "params"),
    [
        (7, (1, None, None), b'{"progressToken":7,"progress":1}'),
        ("7", (0.5, 2, "half"), b'{"progressToken":"7","progress":0.5,"total":2,"message":"half"}'),
        ("\ud800", (1, None, "ü"), '{"progressToken":"\\ud800","progress":1,"message":"ü"}'.encode()),
        (0, (-1, math.inf, ""), b'{"progressToken":0,"progress":-1,"message":""}'),
        ("", (0, math.nan, None), b'{"progressToken":"","progress":0}'),
        (7, (1, 10**400, None), b'{"progressToken":7,"progress":1}'),
    ],
)
def test_progress_is_written(token: int | str, reported: tuple[float, float | None, str | None], params: bytes) -> None:
    expected = b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params
    assert modern({"progressToken": token}).progress(*reported) == expected


@pytest.mark.parametrize("meta", [None, {}, {"other": 7}])
def test_progress_that_was_not_asked_for_is_dropped(meta: Any) -> None:
    assert modern(meta).progress(1, None, "one") is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_progress_that_is_no_finite_number_is_dropped(value: float) -> None:
    exchange = modern(ASKED)
    assert exchange.progress(value, None, None) is None
    assert exchange.progress(0, None, None) is not None


@given(st.lists(st.one_of(st.integers(-3, 3), st.floats(-3, 3), st.floats(), st.integers())))
def test_progress_increases(values: list[float]) -> None:
    exchange = modern(ASKED)
    written = [text for value in values if (text := exchange.progress(value, None, None)) is not None]
    received = [json.loads(text)["params"]["progress"] for text in written]
    assert all(math.isfinite(value) for value in received)
    assert received == sorted(set(received))
    finite = [value for value in values if math.isfinite(value)]
    assert received[-1:] == ([max(finite)] if finite else [])


@pytest.mark.parametrize("meta", [None, ASKED])
def test_a_message_with_a_lone_surrogate_fails_whether_it_was_asked_for_or_not(meta: Any) -> None:
    exchange = modern(meta)
    with pytest.raises(ValueError, match="surrogates"):
        exchange.progress(1, None, "\ud800")


def test_progress_that_failed_may_be_reported_again() -> None:
    exchange = modern(ASKED)
    with pytest.raises(ValueError, match="surrogates"):
        exchange.progress(1, None, "\ud800")
    assert exchange.progress(1, None, "?") is not None


# --- log messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "logger", "params"),
    [
        ("text", None, b'{"level":"error","data":"text"}'),
        ({"a": [1, None, math.nan]}, "x", b'{"level":"error","data":{"a":[1,null,null]},"logger":"x"}'),
        (None, "", b'{"level":"error","data":null,"logger":""}'),
    ],
)
def test_a_log_message_is_written(data: Any, logger: str | None, params: bytes) -> None:
    expected = b'{"jsonrpc":"2.0","method":"notifications/message","params":%b}' % params
    assert modern({LOG_LEVEL_KEY: "debug"}).log("error", data, logger) == expected


@pytest.mark.parametrize("least", LOG_LEVELS)
@pytest.mark.parametrize("level", LOG_LEVELS)
def test_messages_below_the_level_are_dropped(level: LogLevel, least: LogLevel) -> None:
    is_written = LOG_LEVELS.index(level) >= LOG_LEVELS.index(least)
    session = Session()
    session.log_level = least
    assert (modern({LOG_LEVEL_KEY: least}).log(level, "text", None) is not None) is is_written
    assert (in_session(session).log(level, "text", None) is not None) is is_written


@pytest.mark.parametrize("meta", [None, {}, {LOG_LEVEL_KEY: None}])
def test_a_modern_request_without_a_level_has_no_messages(meta: Any) -> None:
    assert modern(meta).log_level is None
    assert modern(meta).log("emergency", "text", None) is None


def test_a_session_has_all_messages_until_its_client_sets_a_level() -> None:
    session = Session()
    assert in_session(session).log("debug", "text", None) is not None
    session.log_level = None
    assert in_session(session).log("emergency", "text", None) is None
    assert in_session(None).log("emergency", "text", None) is None


@pytest.mark.parametrize(("data", "logger"), [("\ud800", None), ({"\udfff": 1}, None), ("text", "\ud800")])
def test_a_log_message_with_a_lone_surrogate_fails(data: Any, logger: str | None) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        in_session(Session()).log("info", data, logger)


# --- the end ---------------------------------------------------------------------------------------------------------


def test_nothing_is_written_once_it_is_over() -> None:
    exchange = modern({**ASKED, LOG_LEVEL_KEY: "debug"})
    exchange.is_over = True
    assert exchange.progress(1, None, "one") is None
    assert exchange.log("emergency", "text", None) is None


@pytest.mark.parametrize(
    ("message_id", "written"),
    [(1, b"1"), ("a", b'"a"'), ("\ud800", b'"\\ud800"')],
)
def test_a_refusal_answers_the_request(message_id: int | str, written: bytes) -> None:
    refusal = modern(None, message_id).refusal(ProtocolError(-32601, "Method not found", "x"))
    error = b'{"code":-32601,"message":"Method not found","data":"x"}'
    assert refusal == b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (written, error)
