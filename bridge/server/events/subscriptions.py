"""Subscriptions: the stored webhooks of one server, which are read again only after a change."""

from __future__ import annotations

import logging
from time import time
from typing import TYPE_CHECKING

from bridge.server.events.store import STATE_SUFFIX
from bridge.server.events.subscription import DeliveryState, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.events.store import EventStore

KEPT_SECONDS = 15.0
"""Seconds for which a subscription that has ended is kept, since a replica whose clock is late may still deliver."""
_logger = logging.getLogger("bridge.server")


class Subscriptions:
    """The stored webhooks of one server.

    Args:
        store: Returns the store.
    """

    def __init__(self, store: Callable[[], EventStore]) -> None:
        self._get_store = store
        self._revision = -1
        self._known: dict[str, Subscription] = {}

    @property
    def _store(self) -> EventStore:
        return self._get_store()

    async def live(self) -> dict[str, Subscription]:
        """Return the subscriptions that have not ended, by identifier.

        Raises:
            EventStoreError: The store cannot be used.
        """
        revision = await self._store.revision()  # before they are read, so that a change meanwhile counts
        if revision != self._revision:
            self._known = _read(await self._store.subscriptions())
            self._revision = revision
        now = time()
        for each in [each for each in self._known.values() if each.expires_at < now - KEPT_SECONDS]:
            await self.delete_ended(each)
        return {identifier: each for identifier, each in self._known.items() if each.expires_at > now}

    async def save(self, subscription: Subscription) -> None:
        """Store a subscription, or replace it; raises as `live`."""
        await self._store.save_subscription(subscription.id, subscription.to_json())

    async def delete(self, subscription: Subscription) -> None:
        """Delete a subscription; raises as `live`."""
        await self._store.delete_subscription(subscription.id)

    async def delete_ended(self, subscription: Subscription) -> None:
        """Delete a subscription that has ended, unless its caller has asked for it meanwhile; raises as `live`."""
        text = await self._store.subscription(subscription.id)
        found = {} if text is None else _read({subscription.id: text})
        # Another version writes the same subscription with other members.
        if any(each.refreshed_at == subscription.refreshed_at for each in found.values()):
            await self._store.delete_subscription(subscription.id, text)

    async def stored(self) -> Mapping[str, bytes]:
        """Return everything that is stored, for `state_of`; raises as `live`."""
        return await self._store.subscriptions()

    async def state(self, subscription: Subscription) -> DeliveryState:
        """Return the state of the deliveries of a subscription; raises as `live`."""
        text = await self._store.subscription(subscription.id + STATE_SUFFIX)
        return state_of(subscription, {} if text is None else {subscription.id + STATE_SUFFIX: text})


def state_of(subscription: Subscription, stored: Mapping[str, bytes]) -> DeliveryState:
    """Return the state of the deliveries of a subscription; that of its beginning if none is stored."""
    text = stored.get(subscription.id + STATE_SUFFIX)
    if text is not None:
        try:
            state = DeliveryState.from_json(text)
        except ValueError as error:
            _logger.error("the state of a subscription is malformed: %s", error)  # noqa: TRY400 - as said
        else:
            if state.created_at == subscription.created_at:
                return state
    return DeliveryState(created_at=subscription.created_at, cursor=subscription.cursor)


def _read(stored: Mapping[str, bytes]) -> dict[str, Subscription]:
    found = {}
    for identifier, text in stored.items():
        if identifier.endswith(STATE_SUFFIX):
            continue
        try:
            found[identifier] = Subscription.from_json(text)
        except ValueError as error:
            _logger.error("a stored subscription is malformed, and left out: %s", error)  # noqa: TRY400 - as said
    return found
