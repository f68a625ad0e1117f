from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge.server.http import sessions as module
from bridge.server.http.sessions import HttpSession, Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEADLINE_SECONDS = 60
IDLE_SECONDS = 100.0


class VirtualTime:
    """Virtual time, which advances while unused sessions are ended, and events in it.

    Args:
        happenings: The events, by time.
        end: Time when everything stops.
    """

    def __init__(self, happenings: Mapping[float, Callable[[], object]], end: float) -> None:
        self.now = 0.0
        self.is_over = anyio.Event()
        self._happenings = dict(happenings)
        self._end = end

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        until = self.now + seconds
        for moment in sorted(self._happenings):
            if moment <= until:
                self.now = moment
                self._happenings.pop(moment)()
        self.now = until
        if self.now > self._end:
            self.is_over.set()
        await checkpoint()


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[VirtualTime], VirtualTime]:
    """Use virtual time for sessions."""

    def let(time: VirtualTime) -> VirtualTime:
        monkeypatch.setattr(module, "monotonic", time.monotonic)
        monkeypatch.setattr(module, "sleep", time.sleep)
        return time

    return let


async def ended(sessions: Sessions, time: VirtualTime) -> list[tuple[str, float]]:
    """Return the sessions that are ended until a time, and when."""
    found: list[tuple[str, float]] = []
    sessions.on_forget = lambda session, _: found.append((session.id, time.now))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sessions.end_unused)
            await time.is_over.wait()
            tasks.cancel_scope.cancel()
    return found


def opened(sessions: Sessions, session_id: str, owner: str = "") -> HttpSession:
    session = HttpSession(session_id, None, owner)
    sessions.open(session)
    return session


class Call:
    """A call that runs in a session.

    Args:
        on_cancel: Called when it is cancelled.
    """

    def __init__(self, on_cancel: Callable[[], object]) -> None:
        self.cancel = on_cancel


def test_a_session_is_found_from_its_opening_until_it_is_forgotten() -> None:
    sessions = Sessions()
    session = opened(sessions, "a")
    assert sessions.find("a") is session
    assert sessions.find("b") is None
    assert len(sessions) == 1
    sessions.forget("b")
    sessions.forget("a")
    assert (sessions.find("a"), len(sessions)) == (None, 0)


def test_what_belongs_to_a_session_ends_with_it() -> None:
    sessions, ends = Sessions(), list[str]()
    session = opened(sessions, "a")
    for number in range(3):
        session.running[f"{number}"] = Call(lambda number=number: ends.append(f"call {number}"))  # type: ignore[misc]
    session.ends.append(lambda: ends.append("stream"))
    sessions.forget("a")
    sessions.forget(session)
    assert ends == ["call 0", "call 1", "call 2", "stream"]
    assert session.is_over


def test_replicas_are_told_of_a_session_that_was_removed_and_whether_it_is_over() -> None:
    sessions, told = Sessions(max_sessions=2), list[tuple[str, bool]]()
    sessions.on_forget = lambda session, is_over: told.append((session.id, is_over))
    for name in ("a", "b"):
        opened(sessions, name, "ada")
    assert sessions.make_room("bob", 0)
    sessions.forget_all()
    assert told == [("a", True), ("b", False)]


def filled(*owners: str, max_sessions: int) -> Sessions:
    sessions = Sessions(max_sessions=max_sessions)
    for number, owner in enumerate(owners):
        opened(sessions, f"{owner}{number}", owner)
    return sessions


def ended_for(sessions: Sessions, owner: str, kept: int = 0) -> list[str] | None:
    """Return the IDs of the sessions that are evicted for one of a caller; None if the caller has to wait."""
    found: list[str] = []
    sessions.on_forget = lambda session, _: found.append(session.id)
    if sessions.make_room(owner, kept):
        return found
    assert found == []
    return None


def test_there_is_room_until_all_sessions_are_open_and_those_of_sse_count() -> None:
    sessions = filled("ada", max_sessions=3)
    with sessions.over_sse(HttpSession("x", None, "ada")):
        assert ended_for(sessions, "ada") == []
        opened(sessions, "y", "ada")
        assert ended_for(sessions, "ada") is None
    assert ended_for(sessions, "ada") == []
    opened(sessions, "z", "ada")
    assert ended_for(sessions, "ada") is None


def test_for_another_caller_the_session_of_whoever_has_most_is_ended_that_is_unused_for_longest() -> None:
    sessions = filled("bob", "ada", "ada", "ada", max_sessions=4)
    first, second, third = (sessions.find(f"ada{number}") for number in (1, 2, 3))
    assert first is not None
    assert second is not None
    assert third is not None
    first.unused_since, second.unused_since, third.unused_since = 3.0, 1.0, 2.0
    with second:
        assert ended_for(sessions, "bob") == ["ada3"]
    opened(sessions, "ada4", "ada")
    second.unused_since = 1.0
    assert ended_for(sessions, "eve") == ["ada2"]


def test_nobody_ends_a_session_for_whoever_would_then_have_as_many() -> None:
    sessions = filled("ada", "ada", "bob", max_sessions=3)
    assert ended_for(sessions, "ada") is None
    assert ended_for(sessions, "bob") is None
    assert ended_for(sessions, "eve") == ["ada0"]


def test_sessions_in_which_calls_run_are_ended_for_nobody_and_those_that_only_listen_after_the_others() -> None:
    sessions = filled("ada", "ada", "ada", max_sessions=3)
    calling, listening = sessions.find("ada0"), sessions.find("ada1")
    assert calling is not None
    assert listening is not None
    calling.__enter__()
    listening.__enter__()
    listening.streams = 1
    assert ended_for(sessions, "bob") == ["ada2"]
    opened(sessions, "bob2", "bob")
    assert ended_for(sessions, "eve") == ["ada1"]
    opened(sessions, "eve1", "eve")
    assert ended_for(sessions, "dan") is None


def test_what_sessions_keep_is_bounded_for_each_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 100)
    monkeypatch.setattr(module, "MAX_KEPT_BYTES_OF_ALL", 300)
    sessions = filled("ada", "ada", "ada", "bob", max_sessions=100)
    for number in range(3):
        session = sessions.find(f"ada{number}")
        assert session is not None
        assert sessions.keep(session, 90)
        assert not sessions.keep(session, 11)
        session.unused_since = float(number)
    bob = sessions.find("bob3")
    assert bob is not None
    assert not sessions.keep(bob, 31)
    assert ended_for(sessions, "ada", 31) is None
    assert ended_for(sessions, "bob", 31) == ["ada0"]
    assert sessions.keep(bob, 100)


def test_of_sessions_whose_responses_are_not_read_the_fullest_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_UNREAD_BYTES_OF_ALL", 140_000)
    sessions, ended = filled("ada", "bob", "eve", max_sessions=3), list[str]()
    sessions.on_forget = lambda session, _: ended.append(session.id)
    ada, bob, eve = (sessions.find(each) for each in ("ada0", "bob1", "eve2"))
    assert ada is not None
    assert bob is not None
    assert eve is not None
    for _ in range(1000):  # responses that are read are not counted
        with ada.sending(b"x" * 50_000):
            assert ada.unread_bytes == 50_000 + 2048
    with ExitStack() as waiting:
        for _ in range(30):
            waiting.enter_context(bob.sending(b""))
        assert (ended, ada.unread_bytes, bob.unread_bytes) == ([], 0, 30 * 2048)
        waiting.enter_context(bob.sending(b"x" * 30_000))
        waiting.enter_context(ada.sending(b"x" * 50_000))
        assert ended == ["bob1"]
        waiting.enter_context(eve.sending(b"x" * 100_000))
        assert ended == ["bob1", "eve2"]
        assert len(sessions) == 1
        waiting.enter_context(eve.sending(b"x" * 100_000))  # a session that has ended
    assert ada.unread_bytes == bob.unread_bytes == eve.unread_bytes == 0
    waiting.enter_context(ada.sending(b"x" * 90_000))
    assert len(sessions) == 1


def test_the_stream_of_a_session_over_sse_whose_responses_are_not_read_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD_BYTES", 100_000)
    sessions, session, ends = Sessions(), HttpSession("", None), list[str]()
    session.ends.append(lambda: ends.append("stream"))
    with sessions.over_sse(session):
        sessions.answered(session, 1, 90_000)
        sessions.sent(session, 1)
        sessions.answered(session, 2, 90_000)
        assert ends == []
        sessions.answered(session, 3, 90_000)
        assert ends == ["stream"]
        assert session.is_over
        sessions.sent(session, 2)
    assert session.unread_bytes == 0


def test_a_session_is_in_use_while_any_request_of_it_is_answered(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    time = passing(VirtualTime({}, 0))
    session = HttpSession("a", None)
    with session:
        with session:
            assert session.requests == 2
        assert session.requests == 1
        time.now = 5.0
    assert (session.requests, session.unused_since) == (0, 5.0)
    time.now = 6.0
    with pytest.raises(ValueError, match="failed"), session:
        raise ValueError("failed")
    assert (session.requests, session.unused_since) == (0, 6.0)


@pytest.mark.anyio
async def test_a_session_ends_when_it_has_gone_unused_for_its_time(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    sessions = Sessions(IDLE_SECONDS)
    happenings = {0.0: lambda: opened(sessions, "first"), 30.0: lambda: opened(sessions, "second")}
    time = passing(VirtualTime(happenings, 300))
    assert await ended(sessions, time) == [("first", 100.0), ("second", 130.0)]
    assert len(sessions) == 0


@pytest.mark.anyio
async def test_a_request_prolongs_a_session_and_one_in_flight_keeps_it(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    sessions = Sessions(IDLE_SECONDS)
    prolonged, kept = opened(sessions, "prolonged"), opened(sessions, "kept")

    def use() -> None:
        with prolonged:
            pass

    happenings = {0.0: use, 10.0: kept.__enter__, 80.0: use, 400.0: lambda: kept.__exit__(None, None, None)}
    time = passing(VirtualTime(happenings, 600))
    prolonged.unused_since = kept.unused_since = 0.0
    assert await ended(sessions, time) == [("prolonged", 180.0), ("kept", 500.0)]


@pytest.mark.anyio
async def test_a_session_that_is_used_while_another_ends_goes_on(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    sessions = Sessions(IDLE_SECONDS)
    time = passing(VirtualTime({}, 150))
    first, second = opened(sessions, "first"), opened(sessions, "second")
    first.ends.append(second.__enter__)
    assert [each for each, _ in await ended(sessions, time)] == ["first"]
    assert sessions.find("second") is second


@pytest.mark.anyio
async def test_a_session_that_was_forgotten_meanwhile_is_not_ended_again(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    sessions = Sessions(IDLE_SECONDS)
    happenings = {0.0: lambda: opened(sessions, "a"), 50.0: lambda: sessions.forget("a")}
    assert await ended(sessions, passing(VirtualTime(happenings, 300))) == [("a", 50.0)]


def test_a_session_is_gone_before_its_calls_end() -> None:
    sessions, found = Sessions(), list[HttpSession | None]()
    opened(sessions, "a").running["1"] = Call(lambda: found.append(sessions.find("a")))
    sessions.forget("a")
    assert found == [None]


@pytest.mark.anyio
async def test_sessions_without_a_limit_are_never_looked_at() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        await Sessions(None).end_unused()
