"""Watch: what is done beside the calls over a link, to see whether its server is there and what of it changes."""

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
"""A subscription that lasted so long was a good one: the next is tried soon, however many were lost before it."""

_logger = logging.getLogger("bridge.client")


class HealthMonitor:
    """Watches one link, until it ends.

    Args:
        link: The link.
        name: What the server is called.
        healing: How often the server is asked whether it is there.
        changes_wanted: Set when somebody wants to hear of changes.

    Attributes:
        hears_changes: Set when changes are told from here on, or it is known that they cannot be.
    """

    def __init__(self, link: Session, name: str, healing: Healing, changes_wanted: anyio.Event) -> None:
        self.hears_changes = anyio.Event()
        if link.era != "modern" or not link.info.announces_tools:  # in the handshake era they come by themselves
            self.hears_changes.set()
        self._link = link
        self._name = name
        self._healing = healing
        self._changes_wanted = changes_wanted

    async def keep_alive(self) -> None:
        """Ask an idle or suspected server whether it is there, and end the link if it is not."""
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
            if is_connection_loss(error, link, attempt):  # any other answer is a sign of life
                link.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever came, it was no sign of life
            link.fail(error)
        finally:
            checked.set()

    async def hear_changes(self) -> None:
        """Hear of changes to the tools, where somebody wants to, for as long as the link lasts."""
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
                    _logger.debug("server %r tells of no changes: %s", self._name, error)
                    return
            except SubscriptionLost:
                pass
            finally:
                self.hears_changes.set()
            losses = 1 if anyio.current_time() - began >= LASTING_SECONDS else losses + 1
            link.suspect()
            await self._healing.wait(link.ended, self._healing.delay_seconds(losses))

    async def _subscribe(self, attempt: OutgoingRequest) -> None:
        """Hear of changes for as long as one subscription lasts."""
        async with AsyncExitStack() as stack:
            with as_current_request(attempt):
                listening = self._link.client.listen(tools_list_changed=True)
                subscription = await stack.enter_async_context(listening)
            if self.hears_changes.is_set():
                self._link.tools_changed()  # they may have changed while nobody listened
            self.hears_changes.set()
            async for _ in subscription:
                self._link.tools_changed()
