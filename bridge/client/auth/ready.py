"""Base of authentications that usually know the headers of a request before it is sent."""

from __future__ import annotations

import httpx2


class ReadyAuth(httpx2.Auth):
    """Auth whose requests can be sent without its flow while `ready_headers` returns headers."""

    def ready_headers(self) -> dict[str, str] | None:
        """Return the headers that sign a request now; None if the flow has to sign it."""
        return {}


NO_AUTH = ReadyAuth()
"""Adds nothing: the requests have the configured headers only."""
