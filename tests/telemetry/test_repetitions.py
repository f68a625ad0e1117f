from __future__ import annotations

from bridge.telemetry.repetitions import Repetitions


class Clock:
    """A clock that does not advance."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_same_is_said_once_in_a_while_with_how_often_it_was_not_said() -> None:
    clock = Clock()
    repetitions = Repetitions(10, clock)
    said = [repetitions.addition("192.0.2.1", "a bad key") for _ in range(4)]
    assert said == ["", None, None, None]
    assert repetitions.addition("192.0.2.2", "a bad key") == ""
    assert repetitions.addition("192.0.2.1", "another reason") == ""
    clock.now += 10
    assert repetitions.addition("192.0.2.1", "a bad key") == " (and 3 times more before)"
    assert repetitions.addition("192.0.2.1", "a bad key") is None
    assert repetitions.addition("192.0.2.2", "a bad key") == ""


def test_of_very_many_things_only_some_are_said() -> None:
    repetitions = Repetitions(10, Clock())
    said = [repetitions.addition(number) for number in range(5000)]
    assert said.count("") == 1025
    assert said[:1024] == [""] * 1024
