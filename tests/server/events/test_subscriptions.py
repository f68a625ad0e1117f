"""Stored subscriptions that end."""

from __future__ import annotations

import json
from dataclasses import replace
from time import time

import pytest

from bridge.server import EventOptions
from bridge.server.events.store import STATE_SUFFIX, MemoryEventStore
from bridge.server.events.subscription import Subscription
from bridge.server.events.subscriptions import Subscriptions
from tests.server.events.hooks import SECRET

pytestmark = pytest.mark.anyio


def lasting(seconds: float) -> Subscription:
    now = time()
    return Subscription(
        id="sub_1",
        name="number",
        arguments={},
        url="https://hooks.example",
        secret=SECRET,
        account="ada",
        caller={"name": "ada", "issuer": "key", "subject": "ada", "team": "", "scopes": []},
        tools=None,
        tags=None,
        created_at=now,
        refreshed_at=now,
        expires_at=now + seconds,
        cursor="",
    )


async def stored_by_another_version(subscription: Subscription) -> MemoryEventStore:
    """Return a store with the subscription, as a version without some of its members has written it."""
    record = json.loads(subscription.to_json())
    del record["is_remote"], record["profiles"]
    store = MemoryEventStore(EventOptions())
    await store.save_subscription(subscription.id, json.dumps(record).encode())
    await store.save_subscription(subscription.id + STATE_SUFFIX, b"{}")
    return store


async def test_a_subscription_that_another_version_has_stored_is_deleted_when_its_caller_or_server_ends_it() -> None:
    for end in (Subscriptions.delete, Subscriptions.delete_ended):
        store = await stored_by_another_version(lasting(60))
        subscriptions = Subscriptions(lambda store=store: store)  # type: ignore[misc]
        (live,) = (await subscriptions.live()).values()
        await end(subscriptions, live)
        assert (await store.subscriptions(), await subscriptions.live()) == ({}, {})


async def test_a_subscription_that_another_version_has_stored_is_deleted_after_it_has_expired() -> None:
    store = await stored_by_another_version(lasting(-60))
    assert await Subscriptions(lambda: store).live() == {}
    assert await store.subscriptions() == {}


async def test_a_subscription_that_was_asked_for_again_is_not_deleted_with_its_former_end() -> None:
    store, former = MemoryEventStore(EventOptions()), lasting(60)
    subscriptions = Subscriptions(lambda: store)
    await subscriptions.save(former)
    asked_again = replace(former, refreshed_at=former.refreshed_at + 1)
    await subscriptions.save(asked_again)
    await subscriptions.delete_ended(former)
    assert await subscriptions.live() == {former.id: asked_again}
