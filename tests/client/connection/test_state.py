from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from bridge.client import ReconnectPolicy
from bridge.client.connection.status import MAX_BACK_OFF_SECONDS, Listeners

if TYPE_CHECKING:
    import pytest


def test_listeners_hear_each_piece_of_news_in_the_order_in_which_they_came() -> None:
    heard: list[tuple[str, int]] = []
    listeners = Listeners[[int]]()
    listeners.add(lambda number: heard.append(("first", number)))
    listeners.add(lambda number: heard.append(("second", number)))
    listeners.notify(1)
    assert heard == [("first", 1), ("second", 1)]


def test_who_has_ended_it_hears_no_more_and_may_end_it_again() -> None:
    heard: list[int] = []
    listeners = Listeners[[int]]()
    end = listeners.add(heard.append)
    assert listeners
    end()
    end()
    listeners.notify(1)
    assert not listeners
    assert heard == []


def test_who_listens_twice_ends_each_once() -> None:
    heard: list[int] = []
    listeners = Listeners[[int]]()
    end, _ = listeners.add(heard.append), listeners.add(heard.append)
    end()
    end()
    listeners.notify(1)
    assert heard == [1]


def test_one_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    listeners = Listeners[[str]]()
    listeners.add(lambda _: heard.append("" + str(1 // 0)))
    listeners.add(heard.append)
    with caplog.at_level(logging.ERROR, "bridge.client"):
        listeners.notify("news")
    assert heard == ["news"]
    assert "a listener failed" in caplog.text


def test_each_failure_doubles_the_delay_up_to_the_cap() -> None:
    reconnect = ReconnectPolicy(first_delay_seconds=10, jitter=lambda: 1.0)
    assert [reconnect.delay_seconds(failures) for failures in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_chance_takes_at_most_half_of_a_delay() -> None:
    assert ReconnectPolicy(first_delay_seconds=1, jitter=lambda: 0.0).delay_seconds(3) == 2


@given(st.integers(min_value=-5), st.floats(0, 1))
def test_no_delay_is_longer_than_the_cap(failures: int, chance: float) -> None:
    assert 0 <= ReconnectPolicy(jitter=lambda: chance).delay_seconds(failures) <= MAX_BACK_OFF_SECONDS
