"""Accounts of callers with limits of their own, and of members of a team, whose limits they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.server.limits.account import BYTES_LIMIT, Account, LimitExceeded

if TYPE_CHECKING:
    from bridge.server.limits.account import ToolAccount
    from bridge.server.limits.limits import CallerLimits, Limits, MakeMeter


class MemberAccount(Account):
    """Usage of a server by one caller, which counts for its team as well.

    Args:
        limits: The limits of the caller.
        make_meter: Creates the meters.
        own: The limits that the caller has in place of those of all; None for none.
        team: Its team; empty for none.
        shared: The account of the team; None for none.
    """

    __slots__ = ("_own", "_shared", "_team")

    def __init__(
        self, limits: Limits, make_meter: MakeMeter, *, own: CallerLimits | None, team: str, shared: Account | None
    ) -> None:
        super().__init__(limits, make_meter)
        self._own, self._team, self._shared = own, team, shared

    def is_of(self, own: CallerLimits | None, team: str) -> bool:
        """True if the account has the limits of a caller, and is one of its team."""
        return own == self._own and team == self._team

    def refusal(self, now: float, version: bytes | None) -> LimitExceeded | None:
        """Return the refusal of a further request; None if it is admitted."""
        return super().refusal(now, version) or self._of_team(now)

    def stream_refusal(self, now: float) -> LimitExceeded | None:
        """Return the refusal of a further stream; None if it is admitted."""
        return super().stream_refusal(now) or self._of_team(now)

    def _of_team(self, now: float) -> LimitExceeded | None:
        """Return the refusal of a request by the rates of the team; its running calls are counted by `enter`."""
        refused = None if self._shared is None else self._shared.stream_refusal(now)
        if refused is None:
            return None
        return self._named(refused, "--team-bytes" if refused.limit == BYTES_LIMIT else "--team-rate")

    def count(self, now: float) -> None:
        """Count an admitted request."""
        super().count(now)
        if self._shared is not None:
            self._shared.count(now)

    def count_bytes(self, now: float, number: int) -> None:
        """Count the bytes of a result."""
        super().count_bytes(now, number)
        if self._shared is not None:
            self._shared.count_bytes(now, number)

    def enter(self, name: str, now: float) -> ToolAccount | LimitExceeded:
        """Count a call of an existing tool; return the account to leave at its end, or the refusal of the call."""
        shared = self._shared
        if shared is not None and (refused := shared.calls_refusal()) is not None:
            return self._named(refused, "--team-concurrency")
        entered = super().enter(name, now)
        if shared is not None and not isinstance(entered, LimitExceeded):
            shared.calls += 1
        return entered

    def tasks_refusal(self) -> LimitExceeded | None:
        """Return the refusal of a further task; None if it may run."""
        own, shared = super().tasks_refusal(), None if self._shared is None else self._shared.tasks_refusal()
        return own or (None if shared is None else self._named(shared, "--team-tasks"))

    def begin_task(self) -> None:
        """Count a task."""
        super().begin_task()
        if self._shared is not None:
            self._shared.begin_task()

    def end_task(self) -> None:
        """Note the end of a task."""
        super().end_task()
        if self._shared is not None:
            self._shared.end_task()

    def leave(self) -> None:
        """Note the end of a call."""
        super().leave()
        if self._shared is not None:
            self._shared.leave()

    def _named(self, refused: LimitExceeded, limit: str) -> LimitExceeded:
        message = refused.message.replace("a caller has", f"the team {self._team!r} has")
        return refused._replace(message=message, limit=limit)
