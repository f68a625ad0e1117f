from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.client.connection import cancelled_calls
from bridge.client.connection.cancelled_calls import GIVEN_UP_SECONDS, CancelledCalls
from bridge.protocol.peer import PendingRequest
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext


class Time:
    """Time of the clock, which the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(cancelled_calls, "monotonic", time)
    return time


class ClientChannel(Channel):
    def __init__(self, peer: object | None) -> None:
        self._peer = peer

    @property
    def peer(self) -> object | None:
        return self._peer


def of(peer: object | None, **words: Any) -> InvocationContext:
    """Return the context of a call from elsewhere, or from this client if one is given."""
    return InvocationContext(channel=ClientChannel(peer), **words)


def attempt_of(context: InvocationContext | None, request_id: int = 0, *, sent: bool = True) -> PendingRequest:
    attempt = PendingRequest()
    attempt.owner = None if context is None else SimpleNamespace(context=context)
    attempt.id, attempt.is_sent = request_id, sent
    return attempt


ALICE, BOB, UNKNOWN = of(object()), of(object()), of(None)


def test_a_client_is_told_from_others_until_their_calls_are_answered() -> None:
    calls = CancelledCalls()
    calls.add(attempt_of(ALICE, 7))
    told = [calls.are_all_of(each) for each in (ALICE, BOB, UNKNOWN, InvocationContext())]
    assert told == [True, False, False, False]
    calls.answered(8)
    assert not calls.are_all_of(BOB)
    calls.answered("7")
    assert calls.are_all_of(BOB)


def test_whoever_is_not_known_is_nobody_else() -> None:
    calls = CancelledCalls()
    calls.add(attempt_of(UNKNOWN, 7))
    assert not calls.are_all_of(UNKNOWN)
    assert not calls.are_all_of(ALICE)


def test_a_program_that_calls_for_itself_is_one_as_long_as_it_says_the_same_of_itself() -> None:
    calls = CancelledCalls()
    calls.add(attempt_of(InvocationContext(memory_id=1, parameters={"user": "bob"}), 7))
    assert calls.are_all_of(InvocationContext(memory_id=1, parameters={"user": "bob"}))
    for another in ({"memory_id": 1}, {"memory_id": 2, "parameters": {"user": "bob"}}):
        assert not calls.are_all_of(InvocationContext(**another))
    assert not calls.are_all_of(of(None, memory_id=1, parameters={"user": "bob"}))


def test_a_call_that_is_never_answered_counts_for_a_bounded_time(time: Time) -> None:
    calls = CancelledCalls()
    calls.add(attempt_of(ALICE, 7))
    time.now += GIVEN_UP_SECONDS / 2
    calls.add(attempt_of(BOB, 8))
    time.now += GIVEN_UP_SECONDS / 2 - 1
    assert not calls.are_all_of(BOB)
    time.now += 1
    assert (calls.are_all_of(ALICE), calls.are_all_of(BOB)) == (False, True)
    time.now += GIVEN_UP_SECONDS / 2
    assert calls.are_all_of(UNKNOWN)


def test_a_call_that_was_never_sent_is_not_remembered() -> None:
    calls = CancelledCalls()
    calls.add(attempt_of(ALICE, sent=False))
    calls.add(attempt_of(None))
    assert calls.are_all_of(UNKNOWN)


def test_beyond_the_limit_nobody_can_be_told_from_anybody_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, time: Time
) -> None:
    monkeypatch.setattr(cancelled_calls, "MAX_REMEMBERED", 1)
    calls = CancelledCalls()
    calls.add(attempt_of(ALICE, 1))
    time.now += GIVEN_UP_SECONDS - 1
    calls.add(attempt_of(BOB, 2))
    calls.answered(1)
    assert not calls.are_all_of(ALICE)
    time.now += GIVEN_UP_SECONDS - 1
    assert not calls.are_all_of(ALICE)
    time.now += 1
    assert calls.are_all_of(ALICE)
