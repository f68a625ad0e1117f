"""EventType: a type of event, as a server lists it, and the emission of its events.

    EventType.emit ─> checked data ─> each server of this process that has the type

The vocabulary is that of SEP-3415: subscriptions have arguments of an ``inputSchema``, and events have data of a
``payloadSchema``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args
from uuid import uuid4
from weakref import WeakSet

from pydantic_core import to_json, to_jsonable_python

from bridge.errors import DefinitionError, WireError
from bridge.text import clip, short_repr
from bridge.tools.checks import require_name, require_type
from bridge.tools.decoration import Published
from bridge.tools.specification import require_json

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

    from bridge.events.occurrence import EventReader
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

MAX_DATA_BYTES = 240 * 1024
"""Maximum bytes of the data of an event, so that a webhook's body has at most 256 KiB."""
MAX_NAME_CHARS = 128
"""Maximum length of the name of a type."""
_MAX_ID_CHARS = 256
_COMPILED_SCHEMAS = 256
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_NOTHING: Mapping[str, Any] = {}

Delivery = Literal["poll", "push", "webhook"]
"""Way in which events are delivered."""
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)
"""All ways."""
Selector = Callable[[Mapping[str, Any], Mapping[str, Any], "InvocationContext"], Awaitable[Mapping[str, Any] | None]]
"""Returns the data that a subscription gets for an event, given its data, the subscription's arguments and the context
of its caller; None if it does not get the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """An event as it was emitted."""

    id: str
    """Identifier of the event."""
    timestamp: float
    """Time at which it occurred, in seconds since 1970."""
    data: Json
    """Its data."""
    caller: tuple[str, str] | None = None
    """`Caller.identity` of the only caller who may see it; None for all."""


class EventSink(Protocol):
    """Takes the emitted events of this process."""

    def emitted(self, feed: object, emission: Emission) -> None:
        """Take an event; called in the thread that emits it, and must not block."""
        ...


sinks: WeakSet[Any] = WeakSet()
"""The sinks of this process, as `EventSink`."""


class Feed:
    """Identity of the events of one type, under whatever names servers have it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType(Published):
    """A type of event.

    Raises:
        DefinitionError: A value is invalid.
    """

    name: str
    """Name of 1 to 128 characters, such as ``build.finished``."""
    title: str | None = None
    """Display name."""
    description: str | None = None
    """Text for models and users."""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: _ANY_OBJECT, hash=False)
    """JSON Schema of the arguments of a subscription."""
    payload_schema: Mapping[str, Any] = field(default_factory=lambda: _ANY_OBJECT, hash=False)
    """JSON Schema of the data of an event."""
    delivery: tuple[Delivery, ...] = DELIVERIES
    """Ways in which events are delivered, of those that the server has."""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    """Arbitrary data; sent over MCP in ``_meta``."""
    selector: Selector | None = field(default=None, compare=False)
    """Selects the events of a subscription; None for all."""
    reader: EventReader | None = field(default=None, compare=False, repr=False)
    """Reads the events from another server; None for events of this process."""
    source: str = field(default="an EventType made by hand", compare=False)
    """Origin, for messages."""
    server: str | None = field(default=None, compare=False)
    """Configured name of the server that it comes from; None for a type of this process."""
    enabled: bool = True
    """False for a type that no server lists."""
    feed: Feed = field(default_factory=Feed, compare=False, repr=False)
    """Identity of its events, which a renamed type keeps."""

    def __post_init__(self) -> None:
        require_name(self.name, "the name of a type of event")
        if len(self.name) > MAX_NAME_CHARS:
            raise DefinitionError(f"the name of a type of event has up to {MAX_NAME_CHARS} characters: {self.name!r}")
        what = f"the event {self.name!r}"
        for name in ("title", "description"):
            require_type(getattr(self, name), str | None, f"the {name} of {what}", "text")
        for name in ("input_schema", "payload_schema", "metadata"):
            require_type(getattr(self, name), Mapping, f"{name} of {what}", "a mapping")
        if not self.delivery or not set(self.delivery) <= set(DELIVERIES):
            raise DefinitionError(f"{what} is delivered by {', '.join(DELIVERIES)}, not {short_repr(self.delivery)}")
        require_json(what, input_schema=self.input_schema, payload_schema=self.payload_schema, metadata=self.metadata)

    def emit(
        self,
        data: object,
        *,
        event_id: str | None = None,
        timestamp: datetime | None = None,
        caller: Caller | None = None,
    ) -> str:
        """Emit an event to the subscribers of every server of this process that has the type; from any thread.

        Args:
            data: What happened: a mapping, or a dataclass or pydantic model of the payload.
            event_id: Identifier of the event, if the system where it occurred has one; None for a new one.
            timestamp: Time at which it occurred, with a time zone; None for now.
            caller: The only caller who may see it; None for all.

        Returns:
            The identifier.

        Raises:
            WireError: The data does not match the schema, or is too large.
            DefinitionError: It is a type of another server, or another argument is invalid.
        """
        if self.reader is not None:
            raise DefinitionError(f"the event {self.name!r} is one of the server {self.server!r}, which emits it")
        require_type(event_id, str | None, "event_id", "text")
        if event_id is not None and not 0 < len(event_id) <= _MAX_ID_CHARS:
            raise DefinitionError(f"event_id has 1 to {_MAX_ID_CHARS} characters, not {len(event_id)}")
        if timestamp is not None and timestamp.tzinfo is None:
            raise DefinitionError(f"timestamp needs a time zone: {timestamp!r}")
        emission = Emission(
            id=event_id or f"evt_{uuid4().hex}",
            timestamp=(timestamp or datetime.now(UTC)).timestamp(),
            data=self._checked(data),
            caller=None if caller is None else caller.identity,
        )
        for sink in tuple(sinks):
            sink.emitted(self.feed, emission)
        return emission.id

    def _checked(self, data: object) -> Json:
        what = f"the data of the event {self.name!r}"
        try:
            plain = to_jsonable_python(data)
            written = to_json(plain, inf_nan_mode="constants")
        except ValueError as error:
            raise WireError(f"{what} is not JSON: {error}") from error
        if not isinstance(plain, dict):
            raise WireError(f"{what} is an object, not {short_repr(data)}")
        if len(written) > MAX_DATA_BYTES:
            raise WireError(f"{what} has {len(written)} bytes, and may have {MAX_DATA_BYTES}: send what identifies it")
        if (problem := problem_of(plain, self.payload_schema)) is not None:
            raise WireError(f"{what} does not match its schema: {problem}")
        return plain


def problem_of(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return the first difference of a value from a schema of this process; None if it conforms."""
    error = next(iter(_validator(to_json(schema)).iter_errors(value)), None)
    if error is None:
        return None
    path = ".".join(map(str, error.absolute_path))
    return clip(f"{path}: {error.message}" if path else error.message)


@lru_cache(_COMPILED_SCHEMAS)
def _validator(schema: bytes) -> Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes 0.1 s, and only events need it
    from pydantic_core import from_json  # noqa: PLC0415 - as above

    return Draft202012Validator(from_json(schema))
