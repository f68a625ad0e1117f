"""Web pages of a server, which people open in a browser, behind the same guards as its endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import Route

    from bridge.server.auth.auth import Auth


class Pages(Protocol):
    """Pages under one path. A browser sends no credential of the server, so that they identify the caller themselves.

    Attributes:
        path: The path, such as ``/connect``.
    """

    path: str

    def routes(self, auth: Auth, endpoint_path: str) -> Sequence[Route]:
        """Return the routes of the pages, at and below their path.

        Args:
            auth: Verifies credentials of callers.
            endpoint_path: Path of the server's endpoint.
        """
        ...


def is_below(path: str, parent: str) -> bool:
    """Return True for a path and the paths below it."""
    return path == parent or path.startswith(f"{parent}/")
