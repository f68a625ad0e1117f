"""Delivery of one webhook, whose type another server has."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.errors import ServerFailure, ServerRefusedError
from bridge.events import EventType
from bridge.server import EventOptions
from bridge.server.events import delivery
from bridge.server.events.callbacks import Callbacks
from bridge.server.events.delivery import Delivery
from bridge.server.events.log import EventLog
from bridge.server.events.reader import LocalReader
from bridge.server.events.store import EventRecord, MemoryEventStore
from bridge.server.events.subscription import DeliveryState, Subscription
from bridge.server.limits.shares import Turns
from tests.server.events.hooks import SECRET
from tests.server.events.receiver import Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio
OPTIONS = EventOptions(heartbeat_seconds=0.01)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


class Delivered:
    """Events of another server, which may be away, or end a subscription; a `DeliveredEvents`."""

    def __init__(self) -> None:
        self.log = EventLog(lambda: MemoryEventStore(OPTIONS))
        self.posting = Turns(1, 1)
        self.absences = 0
        self.ended: list[str] = []
        self.refusal: ServerRefusedError | None = None

    async def types(self, *_: object) -> tuple[EventType, ...]:
        """Return no type for a while."""
        self.absences -= 1
        return () if self.absences >= 0 else (EventType(name="number"),)

    def reader_of(self, type_: EventType) -> Any:
        """Return a reader, or one that is refused."""
        return LocalReader(type_, self.log, OPTIONS) if self.refusal is None else self

    def stream(self, *_: object) -> Any:
        return self

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""

    async def next(self) -> Any:
        assert self.refusal is not None
        raise self.refusal

    def may_see(self, *_: object) -> bool:
        return True

    def end_of(self, *_: object) -> None:
        """Return None: its server says so."""

    async def end(self, subscription: Subscription) -> None:
        self.ended.append(subscription.id)


class Silent(Callbacks):
    """Callbacks of which none answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()
        self.was_waited_for = False

    async def post(self, *_: object) -> bytes:
        """Wait until cancelled, or the deadline."""
        self.asked.set()
        with anyio.move_on_after(3):
            await anyio.sleep_forever()
        self.was_waited_for = True
        return b""


def made(events: Delivered, url: str, callbacks: Callbacks | None = None) -> Delivery:
    now = time()
    subscription = Subscription(
        id="sub_1",
        name="number",
        arguments={},
        url=url,
        secret=SECRET,
        account="ada",
        caller={"name": "ada", "issuer": "key", "subject": "ada", "team": "", "scopes": []},
        tools=None,
        tags=None,
        is_remote=True,
        created_at=now,
        refreshed_at=now,
        expires_at=now + 60,
        cursor="",
    )
    assert Subscription.from_json(subscription.to_json()).to_json() == subscription.to_json()
    state = DeliveryState(created_at=now, cursor="")
    return Delivery(events, callbacks or Callbacks((url,)), subscription, state, OPTIONS, events.end)


async def test_a_webhook_waits_while_the_server_of_its_type_is_away(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_MISSING_SECONDS", 0.001)
    events = Delivered()
    events.absences = 3
    events.log.put(EventRecord(id="e1", name="number", timestamp=time(), data={"value": 1}))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made(events, receiver.url).run)
            while (await anyio.to_thread.run_sync(receiver.next)).json.get("eventId") != "e1":
                """A gap comes first, since the position is of no store."""
            tasks.cancel_scope.cancel()
    assert (events.absences, events.ended) == (-1, [])


@pytest.mark.parametrize("code", [-32011, -32012, -32014, -32023, -32024, -32026, -32602])
async def test_the_end_of_a_subscription_at_another_server_is_passed_on(code: int, receiver: Receiver) -> None:
    events = Delivered()
    events.refusal = refusal(code)
    with anyio.fail_after(30):
        await made(events, receiver.url).run()
        told = (await anyio.to_thread.run_sync(receiver.next)).json
    assert told == {"type": "terminated", "error": {"code": code, "message": "it is gone", "data": {"kind": "event"}}}
    assert events.ended == ["sub_1"]


def refusal(code: int) -> ServerRefusedError:
    failure = ServerFailure(server="one", phase="reading", reason="gone")
    return ServerRefusedError(failure, code, "it is gone", {"kind": "event"})


async def test_a_subscription_that_ends_is_deleted_although_its_callback_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "TERMINATED_SECONDS", 0.001)
    events, callbacks = Delivered(), Silent()
    events.refusal = refusal(-32011)
    with anyio.fail_after(30):
        await made(events, "http://127.0.0.1", callbacks).run()
    assert (callbacks.was_waited_for, events.ended) == (False, ["sub_1"])


async def test_a_shutdown_does_not_wait_for_the_end_of_a_subscription_and_leaves_it_for_the_next_start() -> None:
    events, callbacks = Delivered(), Silent()
    events.refusal = refusal(-32011)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made(events, "http://127.0.0.1", callbacks).run)
            await callbacks.asked.wait()
            tasks.cancel_scope.cancel()
    assert (callbacks.was_waited_for, events.ended) == (False, [])
