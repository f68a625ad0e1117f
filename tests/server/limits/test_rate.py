"""Rates and their meters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import DefinitionError
from bridge.server.limits import Rate
from bridge.server.limits.limits import Meter


def test_a_rate_is_written_as_calls_and_seconds() -> None:
    assert Rate.read(" 100/60 ") == Rate(100, 60.0)
    assert Rate.read("1/0.5") == Rate(1, 0.5)
    assert Rate.read("1/2s") == Rate(1, 2)
    assert str(Rate(100, 60.0)) == "100 in 60 s"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("50MiB/1h", "50 MiB in 1 h"), ("1500/90", "1.5 KiB in 1.5 min"), ("1/0.5", "1 B in 0.5 s")],
)
def test_a_rate_of_bytes_is_shown_in_units(text: str, shown: str) -> None:
    assert Rate.read_bytes(text).of_bytes == shown


@pytest.mark.parametrize("text", ["", "100", "100/", "/1", "0/1", "1/0", "-1/1", "1/1d", "1.5/1"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="rate"):
        Rate.read(text)


@given(st.integers(1, 500), st.floats(0.001, 1e5), st.floats(0, 1e7))
def test_all_of_a_rate_may_be_used_at_once_and_no_more(calls: int, per_seconds: float, now: float) -> None:
    meter = Meter(Rate(calls, per_seconds))
    taken = 0
    while meter.wait_seconds(now) <= 0 and taken <= calls:
        meter.count(now)
        taken += 1
    slack = 1 if per_seconds / calls < 1e-3 else 0  # intervals that rounding could hide
    assert calls <= taken <= calls + slack


@given(st.lists(st.floats(0, 2), max_size=200))
def test_in_no_time_more_pass_than_the_rate_and_what_came_back_meanwhile(pauses: list[float]) -> None:
    meter, now, passed = Meter(Rate(5, 10)), 1e6, 0
    for pause in pauses:
        now += pause
        if meter.wait_seconds(now) <= 0:
            meter.count(now)
            passed += 1
    assert passed <= 5 + sum(pauses) / 2 + 1e-3


def test_who_waits_as_long_as_was_said_may_go_on() -> None:
    meter = Meter(Rate(2, 10))
    meter.count(100.0)
    meter.count(100.0)
    assert meter.wait_seconds(100.0) == pytest.approx(5, abs=1e-4)
    assert meter.wait_seconds(105.0) <= 0
    assert not meter.is_unused(105.0)
    assert meter.is_unused(110.0)
