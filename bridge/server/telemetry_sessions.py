"""Sessions of clients, as an observer is told of them."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from bridge.server.http.sessions import Session


def session_opened() -> None:
    """A session over streamable HTTP was opened."""
    if (observer := switch.observer()) is not None:
        observer.session_opened()


def session_closed(session: Session) -> None:
    """A session over streamable HTTP has ended."""
    if (observer := switch.observer()) is not None:
        observer.session_closed(Peer("http", session.version or ""), monotonic() - session.opened_at)
