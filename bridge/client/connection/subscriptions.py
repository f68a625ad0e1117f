"""Change notifications of a session: of lists, and of resources that are watched.

    handshake era   lists without a subscription, each resource by ``resources/subscribe``
    modern era      one ``subscriptions/listen`` for all; a new one replaces it when something else is wanted

MCP 2025-11-25, "Resources", Subscriptions; 2026-07-28, "Subscriptions".
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.connection.server_messages import CHANGED_LISTS
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError, PendingRequest
from bridge.protocol.results import InvalidResultError
from bridge.protocol.versions import INVALID_PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.abc import TaskStatus

    from bridge.client.connection.session import Session
    from bridge.client.connection.status import ConnectionEvents, ReconnectPolicy
    from bridge.types import Feature, Json

LASTING_SECONDS = 30.0
"""Seconds after which a lost subscription resets the retry delay."""

_logger = logging.getLogger("bridge.client")


def listen(session: Session, notifications: Json, receive: Callable[[Json], None]) -> Coroutine[Any, Any, Json]:
    """Subscribe until the subscription ends; raises as `Session.request` (MCP 2026-07-28, "Subscriptions").

    Args:
        session: The session.
        notifications: The wanted notifications.
        receive: Called with each of them, the acknowledgement first, in the task that waits.
    """
    request = PendingRequest()

    async def handle(message: Json) -> None:
        receive(message)

    request.on_notification = lambda message: request.defer(partial(handle, message))
    session.write("subscriptions/listen", {"notifications": notifications}, request)
    return session.finish(request)


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
        self.refused: dict[str, ProtocolError] = {}
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
        await self._session.link.listening()
        while True:
            changed, wanted = self._wanted.changed, set(self._wanted.uris)
            for uri in wanted ^ subscribed:
                self.refused.pop(uri, None)
                method = "resources/subscribe" if uri in wanted else "resources/unsubscribe"
                try:
                    with anyio.fail_after(self._reconnect.health_timeout_seconds):
                        await self._session.request(method, {"uri": uri}, PendingRequest())
                except ProtocolError as error:
                    self.refused[uri] = error
                except (PeerLostError, InvalidResultError, TimeoutError) as error:
                    self.refused[uri] = ProtocolError(INVALID_PARAMS, f"no usable response to {method}: {error!r}")
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

        def start() -> None:
            nonlocal is_started
            if not is_started:
                is_started = True
                task_status.started(scope)

        def receive(message: Json) -> None:
            if message["method"] != "notifications/subscriptions/acknowledged":
                self._notify(message)
                return
            self._note_refused(wanted, message)
            if is_started:
                self._may_have_changed(wanted)
            start()

        with anyio.CancelScope() as scope:
            while not session.ended.is_set():
                began = anyio.current_time()
                try:
                    await self._listen_once(wanted, receive)
                except ProtocolError as error:
                    _logger.debug("server %r does not announce changes: %s", self._name, error)
                    self.refused |= dict.fromkeys(wanted.uris, error)
                    break
                except (PeerLostError, InvalidResultError):
                    pass
                start()
                losses = 1 if anyio.current_time() - began >= LASTING_SECONDS else losses + 1
                session.suspect()
                await self._reconnect.wait(session.ended, self._reconnect.delay_seconds(losses))
        start()

    async def _listen_once(self, wanted: _Filter, receive: Callable[[Json], None]) -> None:
        """Subscribe, and receive notifications until the subscription ends."""
        notifications: Json = {f"{feature}ListChanged": True for feature in sorted(wanted.lists)}
        if wanted.uris:
            notifications["resourceSubscriptions"] = sorted(wanted.uris)
        await listen(self._session, notifications, receive)

    def _note_refused(self, wanted: _Filter, acknowledgement: Json) -> None:
        honored = (acknowledgement.get("params") or {}).get("notifications")
        uris = honored.get("resourceSubscriptions") if isinstance(honored, dict) else None
        refusal = ProtocolError(INVALID_PARAMS, "it does not announce changes of this resource")
        self.refused = dict.fromkeys(wanted.uris - set(uris if isinstance(uris, list) else ()), refusal)

    def _notify(self, message: Json) -> None:
        method, uri = message["method"], (message.get("params") or {}).get("uri")
        if method == "notifications/resources/updated" and isinstance(uri, str):
            self._events.update_listeners.notify(uri)
        elif (feature := CHANGED_LISTS.get(method)) is not None:
            self._events.list_listeners[feature].notify()

    def _may_have_changed(self, wanted: _Filter) -> None:
        """Notify the listeners after a time without a subscription."""
        for feature in wanted.lists:
            self._events.list_listeners[feature].notify()
        for uri in wanted.uris:
            self._events.update_listeners.notify(uri)
