"""Requests that last, and send notifications until they end, such as ``events/stream``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.client.auth.errors import UnauthorizedError
from bridge.client.connection.failures import is_bare_http_error
from bridge.client.connection.retries import UNAUTHORIZED
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError, PendingRequest
from bridge.protocol.results import InvalidResultError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.client.connection.supervisor import Supervisor
    from bridge.types import Json

    NotificationReceiver = Callable[[Json], Awaitable[None]]

MAX_WAITING_NOTIFICATIONS = 1_000
"""Maximum notifications of a request that wait to be received; with more, the request ends as lost."""


async def stream(supervisor: Supervisor, method: str, params: Mapping[str, Any], receive: NotificationReceiver) -> None:
    """Send a request that lasts, and receive the notifications that belong to it until it ends (modern era).

    Args:
        supervisor: The supervisor of the connection.
        method: Method, such as ``events/stream``.
        params: Parameters.
        receive: Called with each notification, in the task that waits for the end; what it raises ends the request.

    Raises:
        ServerUnavailableError: The server is unavailable, or was lost.
        ServerRefusedError: The server responded with an error.
        ServerAnswerError: The server violates the protocol.
    """
    phase, failures, request = f"requesting {method}", supervisor.failures, PendingRequest()
    session = await supervisor.usable(phase, supervisor.config.connect_wait_seconds)

    def defer(message: Json) -> None:
        if len(request.work) >= MAX_WAITING_NOTIFICATIONS:
            request.fail(PeerLostError("its notifications are received too slowly"))
        elif not request.is_over:
            request.defer(partial(receive, message))

    request.on_notification = defer
    session.write(method, params, request)
    session.usage.streams += 1
    try:
        await session.finish(request)
    except ProtocolError as error:
        if request.status == UNAUTHORIZED:
            raise failures.not_allowed(phase, UnauthorizedError(UNAUTHORIZED)) from error
        if is_bare_http_error(error, request.status):
            raise failures.lost(session, error, phase=phase) from error
        raise failures.refused(phase, error, request.status, request.failure) from error
    except PeerLostError as error:
        session.suspect()
        raise failures.lost(session, error, phase=phase) from error
    except InvalidResultError as error:
        raise failures.unreadable(phase, error) from error
    finally:
        session.usage.streams -= 1
