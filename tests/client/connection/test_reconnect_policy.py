from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.client import ReconnectPolicy
from bridge.client.connection.state import MAX_BACK_OFF_SECONDS


def test_each_failure_doubles_the_delay_up_to_the_cap() -> None:
    reconnect = ReconnectPolicy(first_delay_seconds=1, jitter=lambda: 1.0)
    assert [reconnect.delay_seconds(failures) for failures in range(7)] == [0, 1, 2, 4, 8, 10, 10]


def test_chance_takes_at_most_half_of_a_delay() -> None:
    assert ReconnectPolicy(first_delay_seconds=1, jitter=lambda: 0.0).delay_seconds(3) == 2


@given(st.integers(min_value=-5), st.floats(0, 1))
def test_no_delay_is_longer_than_the_cap(failures: int, chance: float) -> None:
    assert 0 <= ReconnectPolicy(jitter=lambda: chance).delay_seconds(failures) <= MAX_BACK_OFF_SECONDS
