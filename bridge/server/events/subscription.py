"""Subscription: a webhook of a caller, as it is stored, and the state of its deliveries.

A request changes the subscription, and the process that delivers changes the state, so that replicas do not overwrite
each other's changes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import from_json, to_json

from bridge.server.auth.access import Access
from bridge.tools.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Json

ROTATION_SECONDS = 300.0
"""Seconds for which messages are also signed with the secret before a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Base of what is stored as JSON."""

    def to_json(self) -> bytes:
        """Return it as JSON."""
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Return what `to_json` has written.

        Raises:
            ValueError: It is malformed.
        """
        try:
            return cls(**from_json(text))
        except TypeError as error:
            raise ValueError(repr(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription(_Stored):
    """A webhook of a caller."""

    id: str
    """Identifier, made of the caller, the URL, the type and the arguments."""
    name: str
    """Name of the type."""
    arguments: Json
    """Arguments of the subscription."""
    url: str = field(repr=False)
    """The callback."""
    secret: str = field(repr=False)
    """Secret of the signatures."""
    previous_secret: str | None = field(default=None, repr=False)
    """The secret before the last one; None for none."""
    rotated_at: float = 0.0
    """Time at which the secret was changed, in seconds since 1970."""
    account: str
    """The caller in limits."""
    caller: Mapping[str, Any]
    """The caller: ``name``, ``issuer``, ``subject``, ``team`` and ``scopes``."""
    tools: list[str] | None
    """Names and patterns of what the caller sees; None for all."""
    tags: list[str] | None
    """Tags of what the caller sees; None for all."""
    profiles: list[str] | None = None
    """Names and patterns of the profiles to which the caller's key is limited; None for no limit."""
    is_remote: bool = False
    """True for a type of another server."""
    created_at: float
    """Time at which it began, in seconds since 1970."""
    refreshed_at: float
    """Time of the last request for it."""
    expires_at: float
    """Time at which it ends."""
    cursor: str | None
    """Position after which it began."""

    @property
    def access(self) -> Access:
        """Permissions of the caller, when it asked last."""
        return Access(
            tools=None if self.tools is None else tuple(self.tools),
            tags=None if self.tags is None else frozenset(self.tags),
            profiles=None if self.profiles is None else tuple(self.profiles),
        )

    @property
    def of_caller(self) -> Caller:
        """The caller."""
        known = self.caller
        return Caller(
            known["name"],
            frozenset(known["scopes"]),
            issuer=known["issuer"],
            subject=known["subject"],
            team=known["team"],
        )

    def continuing(self, former: Subscription) -> Subscription:
        """Return this subscription as the same one as a former one, whose caller has asked for it again."""
        is_rotated = former.secret != self.secret
        return replace(
            self,
            previous_secret=former.secret if is_rotated else former.previous_secret,
            rotated_at=self.refreshed_at if is_rotated else former.rotated_at,
            created_at=former.created_at,
            cursor=former.cursor,
        )

    def secrets(self, now: float) -> list[str]:
        """Return the secrets with which a message is signed."""
        is_recent = self.previous_secret is not None and now < self.rotated_at + ROTATION_SECONDS
        return [self.secret, *([self.previous_secret] if is_recent and self.previous_secret else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryState(_Stored):
    """State of the deliveries of a subscription."""

    created_at: float
    """Time at which the subscription began, so that the state of an earlier one is recognised."""
    cursor: str | None
    """Position after the events that were delivered, or given up."""
    last_delivery_at: float | None = None
    """Time of the last delivery, in seconds since 1970; None before the first."""
    last_error: str | None = None
    """Reason of the last failure; None after a success."""
    failed_since: float | None = None
    """Time since which deliveries fail; None after a success."""
    suspended_at: float | None = None
    """Time at which deliveries were suspended, until the caller asks again; None if they go on."""

    def to_wire(self) -> Json:
        """Return the ``deliveryStatus``, as it was before the caller has asked again."""
        wire: Json = {
            "active": self.suspended_at is None,
            "lastDeliveryAt": None if self.last_delivery_at is None else time_text(self.last_delivery_at),
            "lastError": self.last_error,
        }
        return wire if self.failed_since is None else wire | {"failedSince": time_text(self.failed_since)}


def subscription_id(caller: Caller, url: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return the identifier of a subscription, which tells nothing and allows nothing."""
    key = dumps([*caller.identity, url, name, arguments], sort_keys=True, separators=(",", ":"))
    return f"sub_{sha256(key.encode(errors='surrogatepass')).hexdigest()[:32]}"


def time_text(seconds: float) -> str:
    """Return a time as ISO 8601, in UTC and whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
