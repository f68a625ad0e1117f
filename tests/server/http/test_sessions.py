from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge.server.http import sessions as module
from bridge.server.http.sessions import Session, Sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEADLINE_SECONDS = 10
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

    async def end(session: Session) -> None:
        found.append((session.id, time.now))
        await checkpoint()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sessions.end_unused, end)
            await time.is_over.wait()
            tasks.cancel_scope.cancel()
    return found


def opened(sessions: Sessions, session_id: str) -> Session:
    session = Session(session_id, None, {})
    sessions.open(session)
    return session


def test_a_session_is_found_from_its_opening_until_it_is_forgotten() -> None:
    sessions = Sessions()
    session = opened(sessions, "a")
    assert sessions.find("a") is session
    assert sessions.find("b") is None
    assert len(sessions) == 1
    sessions.forget("b")
    sessions.forget("a")
    assert (sessions.find("a"), len(sessions)) == (None, 0)


@pytest.mark.parametrize(("running", "cancelled"), [(7, 7), (7, "7"), ("7", 7), ("x", "x"), (10**400, 10**400)])
def test_a_call_is_cancelled_by_its_id_once(running: int | str, cancelled: int | str) -> None:
    session, ends = Session("a", None, {}), list[str]()
    session.running[str(running)] = lambda: ends.append("it")
    session.cancel(cancelled)
    session.cancel(cancelled)
    assert ends == ["it"]
    assert session.id_problem(cancelled) is not None, "it keeps its id until it has ended"


@pytest.mark.parametrize("other", [8, "seven", None, True, 7.0, [7], {"id": 7}])
def test_nothing_is_cancelled_by_what_is_not_its_id(other: Any) -> None:
    session, ends = Session("a", None, {}), list[str]()
    session.running["7"] = session.running["True"] = session.running["None"] = lambda: ends.append("it")
    session.cancel(other)
    assert ends == []


def test_the_calls_of_a_session_end_with_it() -> None:
    sessions, ends = Sessions(), list[int]()
    session = opened(sessions, "a")
    for number in range(3):
        session.running[str(number)] = partial(ends.append, number)
    sessions.forget("a")
    assert ends == [0, 1, 2]


def filled(*owners: str, max_sessions: int) -> Sessions:
    sessions = Sessions(max_sessions=max_sessions)
    for number, owner in enumerate(owners):
        sessions.open(Session(f"{owner}{number}", None, {}, owner))
    return sessions


def ended_for(sessions: Sessions, owner: str, kept: int = 0) -> list[str] | None:
    """Return the IDs of the sessions that are evicted for one of a caller; None if the caller has to wait."""
    ending = sessions.make_room(owner, kept)
    return None if ending is None else [each.id for each in ending]


def test_there_is_room_until_all_sessions_are_open_or_being_opened() -> None:
    sessions = filled("ada", max_sessions=3)
    with sessions.opening("ada") as settle:
        assert ended_for(sessions, "ada") == []
        with sessions.opening("ada"):
            assert ended_for(sessions, "ada") is None
        assert ended_for(sessions, "ada") == []
        settle()
        settle()
        sessions.open(Session("x", None, {}, "ada"))
    sessions.open(Session("y", None, {}, "ada"))
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
    sessions.open(Session("ada4", None, {}, "ada"))
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
    sessions.open(Session("bob2", None, {}, "bob"))
    assert ended_for(sessions, "eve") == ["ada1"]
    sessions.open(Session("eve1", None, {}, "eve"))
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


def test_of_sessions_whose_answers_are_not_read_the_fullest_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNREAD_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_UNREAD_BYTES_OF_ALL", 140_000)
    sessions, ended = filled("ada", "bob", "eve", max_sessions=3), list[str]()
    sessions.end = lambda session: ended.append(session.id)
    ada, bob, eve = (sessions.find(each) for each in ("ada0", "bob1", "eve2"))
    assert ada is not None
    assert bob is not None
    assert eve is not None
    for number in range(1000):  # reads are not counted
        ada.owe(number, "x" * 50_000)
        ada.wrote(number)
    for number in range(30):
        bob.owe(number, None)
    assert (ended, ada.unread_bytes, bob.unread_bytes) == ([], 0, 30 * 2048)
    bob.owe(30, "x" * 30_000)
    ada.owe(1, "first")
    ada.owe(2, "x" * 50_000)
    assert ended == ["bob1"]
    eve.owe(1, "first")
    eve.owe(2, "x" * 100_000)
    assert ended == ["bob1", "eve2"]
    assert len(sessions) == 1
    for number in (1, 2):
        ada.wrote(number)
    assert ada.unread_bytes == 0


def test_answers_of_one_id_whose_client_hung_up_count_until_they_are_written() -> None:
    sessions = filled("ada", max_sessions=1)
    ada = sessions.find("ada0")
    assert ada is not None
    for _ in range(3):
        with ada.posting(1):
            ada.owe(1, None)
    for left in (3, 2, 1):
        assert ada.unread_bytes == left * 2048
        ada.wrote("1")
    assert ada.unread_bytes == 0


def test_an_answer_that_was_written_counts_while_its_request_is_open() -> None:
    sessions = filled("ada", max_sessions=1)
    ada = sessions.find("ada0")
    assert ada is not None
    with ada.posting(1):
        ada.owe(1, None)
        ada.wrote(1)
        assert ada.unread_bytes == 2048
    assert ada.unread_bytes == 0


def test_a_session_is_in_use_while_any_request_of_it_is_answered(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    time = passing(VirtualTime({}, 0))
    session = Session("a", None, {})
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
    found: list[str] = []

    async def end(session: Session) -> None:
        found.append(session.id)
        second.__enter__()
        await checkpoint()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sessions.end_unused, end)
            await time.is_over.wait()
            tasks.cancel_scope.cancel()
    assert found == [first.id]
    assert sessions.find("second") is second


@pytest.mark.anyio
async def test_a_session_that_was_forgotten_meanwhile_is_not_ended(
    passing: Callable[[VirtualTime], VirtualTime],
) -> None:
    sessions = Sessions(IDLE_SECONDS)
    happenings = {0.0: lambda: opened(sessions, "a"), 50.0: lambda: sessions.forget("a")}
    assert await ended(sessions, passing(VirtualTime(happenings, 300))) == []


@pytest.mark.anyio
async def test_a_session_is_gone_before_its_end_begins_and_its_calls_have_ended() -> None:
    sessions, ends = Sessions(0.001), list[str]()
    opened(sessions, "a").running["1"] = lambda: ends.append("call")
    over = anyio.Event()

    async def end(session: Session) -> None:
        assert sessions.find(session.id) is None
        ends.append("session")
        over.set()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sessions.end_unused, end)
            await over.wait()
            tasks.cancel_scope.cancel()
    assert ends == ["call", "session"]


@pytest.mark.anyio
async def test_sessions_without_a_limit_are_never_looked_at() -> None:
    async def end(_: Session) -> None:
        raise AssertionError

    with anyio.fail_after(DEADLINE_SECONDS):
        await Sessions(None).end_unused(end)
