"""Attempt: one request on its way, and what its transport saw of it.

Transports work in the context of whoever sends (the SDK's HTTP transports, and ours for children), so what they see
can be told to the request's own attempt: whether the server may have begun to run it is then a fact, and no guess.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.client.connection.call import Call


class Attempt:
    """One request on its way.

    Attributes:
        call: The call that it belongs to; None for what the connection asks on its own account.
        sent: The server may have begun to run it.
        status: The HTTP status of the answer; None without one.
        cut_off: What the answer would come by has broken.
        expired: The server no longer knows the session.
        request_id: The id of the request, once its server has been told that nobody waits for its answer.
        large_result: Its result, where that is long and was parsed before the SDK could.
        failure: What went wrong on the way; None where nothing did, or where the transport does not see it.
    """

    __slots__ = ("__weakref__", "call", "cut_off", "expired", "failure", "large_result", "request_id", "sent", "status")

    def __init__(self, call: Call | None = None, *, sent: bool = False) -> None:
        self.call = call
        self.sent = sent
        self.status: int | None = None
        self.cut_off = False
        self.expired = False
        self.request_id: object = None
        self.failure: Exception | None = None
        self.large_result: dict[str, Any] | None = None


current_attempt: ContextVar[Attempt | None] = ContextVar("bridge.client.current_attempt", default=None)
"""The attempt in whose context this code runs; None for what belongs to none."""


@contextmanager
def sending(attempt: Attempt) -> Iterator[None]:
    """What is sent in this block is of this attempt."""
    token = current_attempt.set(attempt)
    try:
        yield
    finally:
        current_attempt.reset(token)
