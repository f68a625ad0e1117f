"""Health checks and change notifications of a session."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
from mcp import MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from bridge.client.connection.failures import is_connection_loss
from bridge.client.transports.channel import OutgoingRequest, as_current_request

if TYPE_CHECKING:
    from bridge.client.connection.session import Session
    from bridge.client.connection.state import ReconnectPolicy

LASTING_SECONDS = 30.0
"""Seconds after which a lost subscription resets the retry delay."""

_logger = logging.getLogger("bridge.client")


class HealthMonitor:
    """Monitors one session until it ends.

    Attributes:
        receives_changes: Set when changes are received, or cannot be.
    """

    def __init__(self, session: Session, name: str, reconnect: ReconnectPolicy, changes_wanted: anyio.Event) -> None:
        self.receives_changes = anyio.Event()
        if session.era != "modern" or not session.info.announces_tools:  # the handshake era needs no subscription
            self.receives_changes.set()
        self._session = session
        self._name = name
        self._reconnect = reconnect
        self._changes_wanted = changes_wanted

    async def keep_alive(self) -> None:
        """Check an idle or suspected server regularly, and end the session if it does not respond."""
        session, reconnect = self._session, self._reconnect
        while not session.ended.is_set():
            answers = session.answers
            await reconnect.wait(session.suspicion, reconnect.health_check_seconds)
            if session.suspicion.is_set() or not (session.answers > answers or session.calls):
                await self._check()

    async def _check(self) -> None:
        session = self._session
        checked, session.checked, session.suspicion = session.checked, anyio.Event(), anyio.Event()
        outgoing = OutgoingRequest()
        try:
            with anyio.fail_after(self._reconnect.health_timeout_seconds):
                await session.ping(outgoing)
        except MCPError as error:
            if is_connection_loss(error, session, outgoing):  # any other error shows that the server responds
                session.fail(error)
        except Exception as error:  # noqa: BLE001 - any other exception means no response
            session.fail(error)
        finally:
            checked.set()

    async def receive_changes(self) -> None:
        """Subscribe to tool changes, if there is a listener, while the session lasts."""
        session = self._session
        await self._changes_wanted.wait()
        losses = 0
        while not session.ended.is_set():
            began, outgoing = anyio.current_time(), OutgoingRequest()
            try:
                await self._subscribe(outgoing)
            except ListenNotSupportedError:
                return
            except MCPError as error:
                if not is_connection_loss(error, session, outgoing):
                    _logger.debug("server %r does not announce changes: %s", self._name, error)
                    return
            except SubscriptionLost:
                pass
            finally:
                self.receives_changes.set()
            losses = 1 if anyio.current_time() - began >= LASTING_SECONDS else losses + 1
            session.suspect()
            await self._reconnect.wait(session.ended, self._reconnect.delay_seconds(losses))

    async def _subscribe(self, outgoing: OutgoingRequest) -> None:
        """Receive changes until the subscription ends."""
        async with AsyncExitStack() as stack:
            with as_current_request(outgoing):
                listening = self._session.client.listen(tools_list_changed=True)
                subscription = await stack.enter_async_context(listening)
            if self.receives_changes.is_set():
                self._session.tools_changed()  # they may have changed without a subscription
            self.receives_changes.set()
            async for _ in subscription:
                self._session.tools_changed()
