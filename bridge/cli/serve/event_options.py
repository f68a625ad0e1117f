"""Event options of ``bridge serve``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.cli.options import setting, texts_setting, usage_errors
from bridge.errors import DefinitionError
from bridge.server.events.options import EventOptions

if TYPE_CHECKING:
    import click


@dataclass(frozen=True, slots=True, kw_only=True)
class EventServeOptions:
    """Options of events."""

    event_webhooks: bool = setting(
        is_flag=True,
        help="Send events to callbacks that authenticated callers name, such as those of ChatGPT.",
    )
    event_callback_origins: tuple[str, ...] = texts_setting(
        metavar="ORIGIN",
        help="Origins of callbacks that may have private addresses, and use http. Repeatable.",
    )

    def options(self, ctx: click.Context) -> EventOptions | None:
        """Build the options; None for the defaults."""
        if not self.event_webhooks and not self.event_callback_origins:
            return None
        with usage_errors(ctx, DefinitionError, "--event-callback-origins"):
            return EventOptions(webhooks=self.event_webhooks, callback_origins=self.event_callback_origins)
