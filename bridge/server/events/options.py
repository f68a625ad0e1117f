"""Options of events: how long they are kept, how many, and how they are delivered."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.tools.checks import require_count, require_seconds, require_type

DEFAULT_KEPT_SECONDS = 24 * 3600.0
"""Default time for which an event is kept."""
DEFAULT_MAX_EVENTS = 10_000
"""Default maximum of kept events."""
DEFAULT_MAX_BYTES = 64 * 1024 * 1024
"""Default maximum of bytes of kept events."""
DEFAULT_POLL_SECONDS = 5.0
"""Default time after which clients are asked to poll again."""
DEFAULT_HEARTBEAT_SECONDS = 15.0
"""Default time between two messages of a stream."""
DEFAULT_MAX_STREAMS = 1024
"""Default maximum of open streams."""
DEFAULT_MAX_SUBSCRIPTIONS = 1_000
"""Default maximum of webhooks."""
DEFAULT_MAX_SUBSCRIPTION_SECONDS = 24 * 3600.0
"""Default maximum duration of a webhook."""
DEFAULT_RETRY_SECONDS = 1.0
"""Default time before the first retry of a delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions:
    """Options for the events of one server. They are kept where tasks are: see `bridge.server.TaskOptions.store`.

    Callers share the maxima of streams and of webhooks: a caller may have as many as stay free, so that a single one
    gets half.
    """

    kept_seconds: float = DEFAULT_KEPT_SECONDS
    """Seconds for which an event is kept, for clients that continue from a cursor."""
    max_events: int = DEFAULT_MAX_EVENTS
    """Maximum of kept events; the oldest are dropped."""
    max_bytes: int = DEFAULT_MAX_BYTES
    """Maximum of bytes of kept events; the oldest are dropped."""
    poll_seconds: float = DEFAULT_POLL_SECONDS
    """Seconds after which a client is asked to poll again."""
    heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS
    """Seconds after which a stream without events sends its position."""
    max_streams: int = DEFAULT_MAX_STREAMS
    """Maximum of open streams of all callers."""
    webhooks: bool = False
    """True to send events to callbacks, whose URLs authenticated callers choose."""
    callback_origins: tuple[str, ...] = ()
    """Origins of callbacks, such as ``https://hooks.internal:8443``, that may have private addresses, and use http. Any
    other callback has a public address, and uses https."""
    max_subscriptions: int = DEFAULT_MAX_SUBSCRIPTIONS
    """Maximum of webhooks of all callers."""
    max_subscription_seconds: float = DEFAULT_MAX_SUBSCRIPTION_SECONDS
    """Maximum seconds after which a webhook ends, unless its caller asks for it again."""
    retry_seconds: float = DEFAULT_RETRY_SECONDS
    """Seconds before the first retry of a delivery; doubled by each further one."""

    def __post_init__(self) -> None:
        times = ("kept_seconds", "poll_seconds", "heartbeat_seconds", "max_subscription_seconds", "retry_seconds")
        for name in times:
            require_seconds(getattr(self, name), name, optional=False)
        for name in ("max_events", "max_bytes", "max_streams", "max_subscriptions"):
            require_count(getattr(self, name), name)
        require_type(self.webhooks, bool, "webhooks", "True or False")
        if self.callback_origins:
            from bridge.server.events.callbacks import Callbacks  # noqa: PLC0415 - only with webhooks

            Callbacks(self.callback_origins)
