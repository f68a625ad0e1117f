"""A session that is alive in this replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp.server.connection import Connection
    from mcp.server.streamable_http import StreamableHTTPServerTransport

    from bridge.server.cluster.event_store import SessionEvents
    from bridge.server.cluster.session_records import Record


@dataclass(eq=False, slots=True)
class Alive:
    """What there is of it here."""

    transport: StreamableHTTPServerTransport
    events: SessionEvents
    record: Record | None = None
    """None until ``initialize`` was answered."""
    is_kept: bool = True
    """Whether Redis has what the record says."""
    connection: Connection | None = None
    """None until it is served."""
