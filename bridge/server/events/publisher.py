"""EventPublisher: the part of a server that has events."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.events.event_type import Delivery
    from bridge.server.auth.access import Access
    from bridge.server.events.options import EventOptions
    from bridge.server.events.served import ServedEvents
    from bridge.server.features import Features
    from bridge.server.tasks.options import TaskOptions
    from bridge.tools.caller import Caller


class EventPublisher:
    """Base of a server: its events, which are kept where its tasks are."""

    name: str
    """Name of the server."""
    features: Features
    """The features, with the types of events."""
    event_options: EventOptions
    """The options of events."""
    task_options: TaskOptions
    """The options of tasks."""
    keys_of_apps: tuple[Callable[[Caller], Sequence[Access] | None], ...] = ()
    """`Auth.access_by_keys` of each app that serves it now."""

    @cached_property
    def events(self) -> ServedEvents:
        """The events."""
        from bridge.server.events.served import ServedEvents  # noqa: PLC0415 - only with events

        return ServedEvents(
            self.name,
            lambda: self.features.events,
            self.event_options,
            lambda: self.task_options,
            self._access_by_keys,
        )

    def _access_by_keys(self, caller: Caller) -> Sequence[Access] | None:
        """Return the permissions that a caller's keys have now in any app; None if an app has no list of its keys."""
        found: list[Access] = []
        for of_app in self.keys_of_apps:
            if (accesses := of_app(caller)) is None:
                return None
            found += accesses
        return found if self.keys_of_apps else None

    def take_events(self) -> None:
        """Take the events that this process emits from now on, if the server has any."""
        if self.features.events is not None and self.features.events.local():
            _ = self.events

    def event_deliveries(self, caller: Caller | None, *, modern: bool) -> tuple[Delivery, ...]:
        """Return the ways in which a caller may have events; only an authenticated one has webhooks."""
        has_webhooks = self.event_options.webhooks and caller is not None
        return ("poll", *(("push",) if modern else ()), *(("webhook",) if has_webhooks else ()))
