from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bridge.client import abandoned
from bridge.client.abandoned import Abandoned
from bridge.client.attempt import Attempt

if TYPE_CHECKING:
    import pytest


def attempt_of(peer: object | None, request_id: object = None, *, sent: bool = True) -> Attempt:
    call: Any = SimpleNamespace(context=SimpleNamespace(peer=peer))
    attempt = Attempt(call, sent=sent)
    attempt.request_id = request_id
    return attempt


def test_a_client_is_told_from_others_until_their_calls_are_answered() -> None:
    calls, alice, bob = Abandoned(), object(), object()
    calls.add(attempt_of(alice, 7))
    assert (calls.are_all_of(alice), calls.are_all_of(bob), calls.are_all_of(None)) == (True, False, False)
    calls.answered(8)
    assert not calls.are_all_of(bob)
    calls.answered("7")
    assert calls.are_all_of(bob)


def test_whoever_is_not_known_is_nobody_else() -> None:
    calls = Abandoned()
    calls.add(attempt_of(None, 7))
    assert not calls.are_all_of(None)
    assert not calls.are_all_of(object())


def test_a_call_that_was_never_sent_is_not_remembered() -> None:
    calls = Abandoned()
    calls.add(attempt_of(object(), sent=False))
    calls.add(Attempt(sent=True))
    assert calls.are_all_of(None)


def test_beyond_the_limit_nobody_can_be_told_from_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned, "MAX_REMEMBERED", 1)
    calls, alice = Abandoned(), object()
    calls.add(attempt_of(alice, 1))
    calls.add(attempt_of(object(), 2))
    calls.answered(1)
    assert not calls.are_all_of(alice)
