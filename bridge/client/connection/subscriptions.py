"""Change notifications of a session: of lists, and of resources that are watched.

    handshake era   lists without a subscription, each resource by ``resources/subscribe``
    modern era      one ``subscriptions/listen`` for all; a new one replaces it when something else is wanted

MCP 2025-11-25, "Resources", Subscriptions; 2026-07-28, "Subscriptions".
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import anyio
from mcp import MCPError
from mcp.client.subscriptions import (
    ListenNotSupportedError,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    SubscriptionLost,
)
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError

from bridge.client.connection.failures import is_connection_loss
from bridge.client.transports.channel import OutgoingRequest, as_current_request

if TYPE_CHECKING:
    from anyio.abc import TaskStatus
    from mcp.client.subscriptions import ServerEvent

    from bridge.client.connection.session import Session
    from bridge.client.connection.state import ConnectionEvents, ReconnectPolicy
    from bridge.types import Feature

LASTING_SECONDS = 30.0
"""Seconds after which a lost subscription resets the retry delay."""

_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True)
class _Filter:
    """Changes that one subscription announces."""

    lists: frozenset[Feature]
    uris: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.lists or self.uris)


class ChangeReceiver:
    """Receives the changes that a connection's listeners want, over one session.

    Args:
        session: The session.
        name: The server's name.
        reconnect: Delays after a lost subscription.
        events: The listeners, and what they want.

    Attributes:
        refused: Errors of the server, by the URI of a resource that it does not let this client watch.
    """

    def __init__(self, session: Session, name: str, reconnect: ReconnectPolicy, events: ConnectionEvents) -> None:
        self.refused: dict[str, MCPError] = {}
        self._session = session
        self._name = name
        self._reconnect = reconnect
        self._events = events
        self._wanted = events.wanted
        self._wanted.missed |= self._wanted.uris  # of sessions before this one
        self._received: anyio.Event | None = None
        self._progress = anyio.Event()

    async def settled(self) -> None:
        """Wait until the changes that are wanted now are received, or cannot be."""
        while self._received is not self._wanted.changed and not self._session.ended.is_set():
            await self._progress.wait()

    async def run(self) -> None:
        """Receive changes until cancelled."""
        await (self._listen() if self._session.era == "modern" else self._subscribe())

    def _settle(self, received: anyio.Event) -> None:
        """Note that the changes are received that were wanted when an event was the current one."""
        self._received = received
        self._progress.set()
        self._progress = anyio.Event()
        if received is not self._wanted.changed:
            return  # the next resources are about to be watched
        missed, self._wanted.missed = self._wanted.missed, set()
        for uri in missed - self.refused.keys():
            self._events.update_listeners.notify(uri)

    async def _subscribe(self) -> None:
        subscribed: set[str] = set()
        while True:
            changed, wanted = self._wanted.changed, set(self._wanted.uris)
            for uri in wanted ^ subscribed:
                self.refused.pop(uri, None)
                method = "resources/subscribe" if uri in wanted else "resources/unsubscribe"
                try:
                    with anyio.fail_after(self._reconnect.health_timeout_seconds):
                        await self._session.request(method, {"uri": uri}, OutgoingRequest())
                except MCPError as error:
                    self.refused[uri] = error
                except (ValidationError, TimeoutError) as error:
                    self.refused[uri] = MCPError(INVALID_PARAMS, f"no usable response to {method}: {error!r}")
            subscribed = wanted
            self._settle(changed)
            await changed.wait()

    async def _listen(self) -> None:
        current, listening = _Filter(frozenset(), frozenset()), anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            while True:
                changed, wanted = self._wanted.changed, self._filter()
                if wanted != current:
                    before, current = listening, wanted
                    if wanted:
                        listening = await tasks.start(self._keep_listening, wanted)
                    before.cancel()  # only now, so that no change is missed
                self._settle(changed)
                await changed.wait()

    def _filter(self) -> _Filter:
        info = self._session.info
        return _Filter(
            frozenset(each for each in self._wanted.lists if info.announces(each)), frozenset(self._wanted.uris)
        )

    async def _keep_listening(self, wanted: _Filter, *, task_status: TaskStatus[anyio.CancelScope]) -> None:
        """Listen again after each loss, until the scope that ``task_status`` gets is cancelled."""
        session, losses, is_started = self._session, 0, False
        with anyio.CancelScope() as scope:
            while not session.ended.is_set():
                began, outgoing = anyio.current_time(), OutgoingRequest()
                try:
                    async with AsyncExitStack() as stack:
                        with as_current_request(outgoing):
                            listening = session.client.listen(
                                tools_list_changed="tools" in wanted.lists,
                                resources_list_changed="resources" in wanted.lists,
                                prompts_list_changed="prompts" in wanted.lists,
                                resource_subscriptions=sorted(wanted.uris),
                            )
                            subscription = await stack.enter_async_context(listening)
                        self._note_refused(wanted, subscription.honored.resource_subscriptions or ())
                        if is_started:
                            self._may_have_changed(wanted)
                        else:
                            is_started = True
                            task_status.started(scope)
                        async for event in subscription:
                            self._notify(event)
                except ListenNotSupportedError:
                    break
                except MCPError as error:
                    if not is_connection_loss(error, session, outgoing):
                        _logger.debug("server %r does not announce changes: %s", self._name, error)
                        self.refused |= dict.fromkeys(wanted.uris, error)
                        break
                except SubscriptionLost:
                    pass
                if not is_started:
                    is_started = True
                    task_status.started(scope)
                losses = 1 if anyio.current_time() - began >= LASTING_SECONDS else losses + 1
                session.suspect()
                await self._reconnect.wait(session.ended, self._reconnect.delay_seconds(losses))
        if not is_started:
            task_status.started(scope)

    def _note_refused(self, wanted: _Filter, honored: object) -> None:
        uris = {str(uri) for uri in cast("list[str]", honored)}
        refusal = MCPError(INVALID_PARAMS, "it does not announce changes of this resource")
        self.refused = dict.fromkeys(wanted.uris - uris, refusal)

    def _notify(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated):
            self._events.update_listeners.notify(event.uri)
        elif isinstance(event, ResourcesListChanged):
            self._events.list_listeners["resources"].notify()
        elif isinstance(event, PromptsListChanged):
            self._events.list_listeners["prompts"].notify()
        else:
            self._events.list_listeners["tools"].notify()

    def _may_have_changed(self, wanted: _Filter) -> None:
        """Notify the listeners after a time without a subscription."""
        for feature in wanted.lists:
            self._events.list_listeners[feature].notify()
        for uri in wanted.uris:
            self._events.update_listeners.notify(uri)
