"""Health checks of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError, PendingRequest

if TYPE_CHECKING:
    from bridge.client.connection.session import Session
    from bridge.client.connection.status import ReconnectPolicy


async def until_unused(session: Session, seconds: float, reconnect: ReconnectPolicy) -> bool:
    """Wait until a session was not used for some seconds; returns False if it has ended before.

    Running calls, watched resources, streams of events, and tasks that the server has made, use it; health checks and
    lists do not.
    """
    usage, before = session.usage, -1
    while True:
        uses = session.answers - usage.upkeep
        is_used = session.has_calls or usage.has_tasks or usage.streams or session.events.wanted.uris
        if uses == before and not is_used:
            return True
        before = uses
        await reconnect.wait(session.ended, seconds)
        if session.ended.is_set():
            return False


class HealthMonitor:
    """Monitors one session until it ends."""

    def __init__(self, session: Session, reconnect: ReconnectPolicy) -> None:
        self._session = session
        self._reconnect = reconnect

    async def keep_alive(self) -> None:
        """Check an idle or suspected server regularly, and end the session if it does not respond."""
        session, reconnect = self._session, self._reconnect
        while not session.ended.is_set():
            answers = session.answers
            await reconnect.wait(session.suspicion, reconnect.health_check_seconds)
            if session.suspicion.is_set() or not (session.answers > answers or session.has_calls):
                await self._check()

    async def _check(self) -> None:
        session = self._session
        checked, session.checked, session.suspicion = session.checked, anyio.Event(), anyio.Event()
        try:
            with anyio.fail_after(self._reconnect.health_timeout_seconds):
                try:
                    await session.ping(PendingRequest())
                except PeerLostError:  # of one connection; the server may take another
                    await session.ping(PendingRequest())
                session.usage.upkeep += 1
        except ProtocolError:
            pass  # an error shows that the server responds
        except Exception as error:  # noqa: BLE001 - any other exception means no response
            session.fail(error)
        finally:
            checked.set()
