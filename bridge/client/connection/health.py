"""Health checks and change notifications of a session."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
from mcp import MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from bridge.client.connection.failures import is_connection_loss
from bridge.client.connection.requests import OutgoingRequest, as_current_request

if TYPE_CHECKING:
    from bridge.client.connection.session import Session
    from bridge.client.connection.state import Healing

LASTING_SECONDS = 30.0
"""Seconds after which a lost subscription resets the retry delay."""

_logger = logging.getLogger("bridge.client")


class HealthMonitor:
    """Monitors one session until it ends.

    Args:
        link: The session.
        name: The server's name.
        healing: Intervals of health checks and retries.
        changes_wanted: Set when there is a listener for tool changes.

    Attributes:
        hears_changes: Set when changes are received, or cannot be.
    """

    def __init__(self, link: Session, name: str, healing: Healing, changes_wanted: anyio.Event) -> None:
        self.hears_changes = anyio.Event()
        if link.era != "modern" or not link.info.announces_tools:  # the handshake era needs no subscription
            self.hears_changes.set()
        self._link = link
        self._name = name
        self._healing = healing
        self._changes_wanted = changes_wanted

    async def keep_alive(self) -> None:
        """Check an idle or suspected server regularly, and end the session if it does not respond."""
        link, healing = self._link, self._healing
        while not link.ended.is_set():
            answers = link.answers
            await healing.wait(link.suspicion, healing.health_check_seconds)
            if link.suspicion.is_set() or not (link.answers > answers or link.calls):
                await self._check()

    async def _check(self) -> None:
        link = self._link
        checked, link.checked, link.suspicion = link.checked, anyio.Event(), anyio.Event()
        attempt = OutgoingRequest()
        try:
            with anyio.fail_after(self._healing.health_timeout_seconds):
                await link.ping(attempt)
        except MCPError as error:
            if is_connection_loss(error, link, attempt):  # any other error shows that the server responds
                link.fail(error)
        except Exception as error:  # noqa: BLE001 - any other exception means no response
            link.fail(error)
        finally:
            checked.set()

    async def hear_changes(self) -> None:
        """Subscribe to tool changes, if there is a listener, while the session lasts."""
        link = self._link
        await self._changes_wanted.wait()
        losses = 0
        while not link.ended.is_set():
            began, attempt = anyio.current_time(), OutgoingRequest()
            try:
                await self._subscribe(attempt)
            except ListenNotSupportedError:
                return
            except MCPError as error:
                if not is_connection_loss(error, link, attempt):
                    _logger.debug("server %r does not announce changes: %s", self._name, error)
                    return
            except SubscriptionLost:
                pass
            finally:
                self.hears_changes.set()
            losses = 1 if anyio.current_time() - began >= LASTING_SECONDS else losses + 1
            link.suspect()
            await self._healing.wait(link.ended, self._healing.delay_seconds(losses))

    async def _subscribe(self, attempt: OutgoingRequest) -> None:
        """Receive changes until the subscription ends."""
        async with AsyncExitStack() as stack:
            with as_current_request(attempt):
                listening = self._link.client.listen(tools_list_changed=True)
                subscription = await stack.enter_async_context(listening)
            if self.hears_changes.is_set():
                self._link.tools_changed()  # they may have changed without a subscription
            self.hears_changes.set()
            async for _ in subscription:
                self._link.tools_changed()
