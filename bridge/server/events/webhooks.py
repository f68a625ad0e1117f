"""Webhooks of a server: the subscriptions of callers, the challenge of their callbacks, and who delivers to them.

    events/subscribe ─> challenge of the callback ─> stored subscription ─> a `Delivery` in the process that leads

Clauses: SEP-3415, "Webhook-Based Delivery"; ChatGPT's profile of it.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter, deque
from secrets import token_hex, token_urlsafe
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import from_json, to_json

from bridge.errors import WireError
from bridge.events.signatures import key_of, signed_headers
from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import CALLBACK_FAILED, FORBIDDEN, NOT_FOUND, RESOURCE_EXHAUSTED
from bridge.server.events.beginnings import beginning_of
from bridge.server.events.callbacks import CallbackError, Callbacks, host_of
from bridge.server.events.delivery import Delivery
from bridge.server.events.store import EventStoreError
from bridge.server.events.subscription import Subscription, subscription_id, time_text
from bridge.server.events.subscriptions import Subscriptions, state_of
from bridge.server.limits.shares import Turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import TaskGroup

    from bridge.events.event_type import EventType
    from bridge.events.occurrence import EventRequest
    from bridge.server.auth.access import Access
    from bridge.server.events.beginnings import Beginning
    from bridge.server.events.delivery import DeliveredEvents
    from bridge.server.events.options import EventOptions
    from bridge.server.events.store import EventStore
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

DEFAULT_SECONDS = 3600.0
"""Duration of a subscription whose caller suggests none, in seconds."""
LEAST_SECONDS = 60.0
"""Least duration of a subscription."""
VERIFIED_SECONDS = 3600.0
"""Seconds for which a callback that has passed the challenge is not challenged again for the same caller."""
MAX_CHALLENGES, MAX_CHALLENGES_OF_ONE = 8, 2
"""Maximum of challenges at a time, and of those of one caller: others wait for their turn."""
MAX_CHALLENGES_A_MINUTE = 60
"""Maximum of challenges of one host in a minute."""
LEASE_SECONDS = 15.0
"""Seconds after which another replica delivers, if the one that has delivered is gone."""
LOOK_SECONDS = 2.0
"""Seconds between two looks whether subscriptions were stored, or have ended."""
_MAX_REMEMBERED = 10_000
_MINUTE_SECONDS = 60.0
_logger = logging.getLogger("bridge.server")


class Webhooks:
    """The webhooks of one server.

    Args:
        events: The events of the server.
        options: The options of events.
    """

    def __init__(self, events: DeliveredEvents, options: EventOptions) -> None:
        self._events = events
        self._options = options
        self._callbacks = Callbacks(options.callback_origins)
        self._verified: dict[tuple[str, ...], float] = {}
        self._challenges = Turns(MAX_CHALLENGES, MAX_CHALLENGES_OF_ONE)
        self._challenged: dict[str, deque[float]] = {}
        self._changed = anyio.Event()
        self._running: dict[str, Delivery] = {}
        self._process = token_hex(8)
        self._changing = anyio.Lock()
        self._stored = Subscriptions(lambda: self._store)

    @property
    def _store(self) -> EventStore:
        return self._events.log.store

    # --- requests of callers ------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        type_: EventType,
        request: EventRequest,
        params: Mapping[str, Any],
        access: Access,
        context: InvocationContext,
        credential_expires_at: float | None = None,
    ) -> Json:
        """Begin a subscription, or go on with one; return the result of ``events/subscribe``.

        Args:
            type_: The type of events.
            request: The arguments and the position.
            params: Parameters of the request: ``delivery`` and ``ttlMs``.
            access: Permissions of the caller.
            context: Context of the request.
            credential_expires_at: Time at which the credential of the caller expires, and the subscription at the
                latest; None for never.

        Raises:
            ProtocolError: The request is malformed, there are too many, or the callback did not pass the challenge.
            ToolError, ServerError: The position of the events cannot be found; see `beginning_of`.
            EventStoreError: The store cannot be used.
        """
        caller = context.caller
        if caller is None:
            raise ProtocolError(FORBIDDEN, "only authenticated callers have webhooks")
        url, secret = self._callback_of(params), self._secret_of(params)
        seconds = self._seconds_of(params)
        identifier = subscription_id(caller, url, type_.name, request.arguments)
        await self._events.log.open()
        self._require_room(await self._stored.live(), identifier, context.account)  # before a challenge is sent
        await self._require_verified(url, secret, (*caller.identity,), identifier, context.account)
        begun: Beginning | None = None
        while True:
            if begun is None and identifier not in await self._stored.live():
                # Without the lock, for which other callers wait: the events may be those of a slow server.
                begun = await beginning_of(self._events.reader_of(type_), type_.name, request, context)
            async with self._changing:
                stored = await self._stored.live()
                former = stored.get(identifier)
                if former is None and begun is None:
                    continue  # it has ended meanwhile
                self._require_room(stored, identifier, context.account)
                state = None if former is None else await self._stored.state(former)
                now = time()
                subscription = Subscription(
                    id=identifier,
                    name=type_.name,
                    arguments=dict(request.arguments),
                    url=url,
                    secret=secret,
                    account=context.account,
                    caller={
                        "name": caller.name,
                        "issuer": caller.issuer,
                        "subject": caller.subject,
                        "team": caller.team,
                        "scopes": sorted(caller.scopes),
                    },
                    tools=None if access.tools is None else list(access.tools),
                    tags=None if access.tags is None else sorted(access.tags),
                    profiles=None if access.profiles is None else list(access.profiles),
                    is_remote=type_.reader is not None,
                    created_at=now,
                    refreshed_at=now,
                    expires_at=self._expiry(seconds, credential_expires_at),
                    cursor=None if begun is None else begun.cursor,
                )
                if former is not None:
                    subscription = subscription.continuing(former)
                await self._stored.save(subscription)
                break
        self._look_again()
        result: Json = {
            "id": identifier,
            "refreshBefore": time_text(subscription.expires_at),
            "cursor": subscription.cursor if state is None else state.cursor,
            "truncated": former is None and begun is not None and begun.truncated,
        }
        return result if state is None else result | {"deliveryStatus": state.to_wire()}

    async def unsubscribe(
        self, name: str, request: EventRequest, params: Mapping[str, Any], context: InvocationContext
    ) -> None:
        """End a subscription.

        Raises:
            ProtocolError: There is none, or the request is malformed.
            EventStoreError: The store cannot be used.
        """
        caller = context.caller
        if caller is None:
            raise ProtocolError(FORBIDDEN, "only authenticated callers have webhooks")
        delivery = params.get("delivery")
        url = delivery.get("url") if isinstance(delivery, dict) else None
        if not isinstance(url, str):
            raise invalid_params("'delivery' must be an object with the 'url'")
        identifier = subscription_id(caller, url, name, request.arguments)
        await self._events.log.open()
        async with self._changing:
            if (found := (await self._stored.live()).get(identifier)) is None:
                raise ProtocolError(NOT_FOUND, "there is no such subscription", {"kind": "subscription"})
            await self._stored.delete(found)
        self._look_again()

    def _callback_of(self, params: Mapping[str, Any]) -> str:
        delivery = params.get("delivery")
        if not isinstance(delivery, dict) or delivery.get("mode", "webhook") != "webhook":
            raise invalid_params("'delivery' must be an object with the mode 'webhook'")
        if (problem := self._callbacks.problem_of(url := delivery.get("url"))) is not None:
            raise invalid_params(f"'delivery.url': {problem}")
        assert isinstance(url, str), "it was checked"
        return url

    def _secret_of(self, params: Mapping[str, Any]) -> str:
        secret = params["delivery"].get("secret")
        try:
            key_of(secret)
        except WireError as error:
            raise invalid_params(f"'delivery.secret': {error}") from None
        assert isinstance(secret, str), "it was checked"
        return secret

    def _seconds_of(self, params: Mapping[str, Any]) -> float:
        most = self._options.max_subscription_seconds
        if "ttlMs" not in params:
            return min(DEFAULT_SECONDS, most)
        given = params["ttlMs"]
        if given is None:  # no end, which is not granted
            return most
        if type(given) is not int or given < 0:
            raise invalid_params("'ttlMs' must be null, or a whole number")
        return min(max(given / 1000, LEAST_SECONDS), most)

    def _require_room(self, stored: Mapping[str, Subscription], identifier: str, account: str) -> None:
        """Check that a caller may have a further subscription: as many as stay free.

        Raises:
            ProtocolError: It may not.
        """
        most = self._options.max_subscriptions
        if identifier in stored:
            return
        own = Counter(each.account for each in stored.values())[account]
        if len(stored) + own >= most:
            message = f"too many subscriptions: a caller may have as many as stay free of {most}"
            raise ProtocolError(RESOURCE_EXHAUSTED, message, {"limit": "subscriptions", "max": most})

    @staticmethod
    def _expiry(seconds: float, credential_expires_at: float | None) -> float:
        """Return the time at which a subscription ends.

        Raises:
            ProtocolError: The credential has expired.
        """
        now = time()
        expires_at = now + seconds
        if credential_expires_at is not None and (expires_at := min(expires_at, credential_expires_at)) <= now:
            raise ProtocolError(FORBIDDEN, "the credential has expired")
        return expires_at

    # --- the challenge of a callback ----------------------------------------------------------------------------------

    async def _require_verified(
        self, url: str, secret: str, identity: tuple[str, ...], identifier: str, account: str
    ) -> None:
        """Send a callback a challenge, unless it has passed one for the same caller.

        Raises:
            ProtocolError: It did not pass, or too many are under way.
        """
        key, now = (*identity, url), monotonic()
        if self._verified.get(key, 0.0) > now:
            return
        self._count_challenge(url, now)
        challenge = token_urlsafe(32)
        body = to_json({"type": "verification", "challenge": challenge})
        headers = signed_headers([secret], f"msg_verification_{token_hex(16)}", body, identifier)
        try:
            async with self._challenges.taken(account):
                _require_challenge(await self._callbacks.post(url, body, headers), challenge)
        except CallbackError as error:
            _logger.info("the callback of the subscription %s was not verified: %s", identifier, error)
            message = "the callback could not be verified"
            raise ProtocolError(CALLBACK_FAILED, message, {"reason": error.reason}) from error
        if len(self._verified) >= _MAX_REMEMBERED:
            self._verified.clear()
        self._verified[key] = now + VERIFIED_SECONDS

    def _count_challenge(self, url: str, now: float) -> None:
        """Count a challenge of a host.

        Raises:
            ProtocolError: It had too many in the last minute.
        """
        host = host_of(url)
        if len(self._challenged) >= _MAX_REMEMBERED:
            self._challenged = {key: each for key, each in self._challenged.items() if each[-1] > now - _MINUTE_SECONDS}
        recent = self._challenged.setdefault(host, deque(maxlen=MAX_CHALLENGES_A_MINUTE))
        if len(recent) == MAX_CHALLENGES_A_MINUTE and recent[0] > now - _MINUTE_SECONDS:
            limit = {"limit": "verifications_per_minute", "max": MAX_CHALLENGES_A_MINUTE}
            raise ProtocolError(RESOURCE_EXHAUSTED, "too many callbacks of this host are verified", limit)
        recent.append(now)

    # --- delivery -----------------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Deliver events while this process leads, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._changed = anyio.Event()
                try:
                    await self._events.log.open()
                    leads = await self._store.leads(self._process, LEASE_SECONDS)
                    await self._use(await self._stored.live() if leads else {}, tasks)
                except EventStoreError as error:
                    _logger.warning("webhooks wait: %s", error)
                    await self._use({}, tasks)
                except Exception:
                    _logger.exception("webhooks could not be looked for")
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._changed.wait()

    async def _use(self, subscriptions: Mapping[str, Subscription], tasks: TaskGroup) -> None:
        """Deliver to these subscriptions from now on."""
        for identifier in self._running.keys() - subscriptions.keys():
            self._running.pop(identifier).end()
        texts: Mapping[str, bytes] | None = None
        for identifier, subscription in subscriptions.items():
            running = self._running.get(identifier)
            if running is not None and running.subscription.created_at != subscription.created_at:
                self._running.pop(identifier).end()
                running = None
            if running is not None:
                running.refresh(subscription)
                continue
            if texts is None:  # once for all that begin: a new leader begins with all
                texts = await self._stored.stored()
            state = state_of(subscription, texts)
            running = Delivery(self._events, self._callbacks, subscription, state, self._options, self._ended)
            self._running[identifier] = running
            tasks.start_soon(self._deliver, running)

    async def _deliver(self, delivery: Delivery) -> None:
        """Deliver to a subscription, after which another delivery may begin."""
        try:
            await delivery.run()
        finally:
            if self._running.get(delivery.subscription.id) is delivery:
                del self._running[delivery.subscription.id]
            self._look_again()

    async def _ended(self, subscription: Subscription) -> None:
        """Delete a subscription that has ended before its time, unless its caller has asked for it again meanwhile."""
        async with self._changing:
            await self._stored.delete_ended(subscription)


def _require_challenge(answer: bytes, challenge: str) -> None:
    """Check the answer to a challenge.

    Raises:
        CallbackError: It has not the challenge.
    """
    try:
        given = from_json(answer)
    except ValueError:
        given = None
    found = given.get("challenge") if isinstance(given, dict) else None
    if not isinstance(found, str) or not hmac.compare_digest(found.encode(errors="replace"), challenge.encode()):
        raise CallbackError("challenge_failed", "its answer has not the challenge")
