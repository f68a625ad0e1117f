"""Sessions of clients, as an observer is told of them."""

from __future__ import annotations

from contextlib import nullcontext
from time import monotonic
from typing import TYPE_CHECKING

from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bridge.server.sessions import Session


def observed_session(transport: str) -> AbstractContextManager[None]:
    """A block that is as long as a session.

    Args:
        transport: How the client came: ``stdio`` or ``sse``.
    """
    observer = switch.observer()
    return nullcontext() if observer is None else observer.session(Peer(transport, ""))


def session_opened() -> None:
    """A session over streamable HTTP was opened."""
    if (observer := switch.observer()) is not None:
        observer.session_opened()


def session_closed(session: Session) -> None:
    """A session over streamable HTTP has ended."""
    if (observer := switch.observer()) is not None:
        observer.session_closed(Peer("http", session.version or ""), monotonic() - session.opened_at)
