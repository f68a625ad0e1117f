"""The gateway's public URL, which links and redirects begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import DefinitionError, ToolError
from bridge.server.auth.issuer import require_url
from bridge.server.http.host_origin import host_name

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


class PublicAddress:
    """The URL under which browsers reach a gateway, without a path of its own pages.

    Args:
        url: The URL; None for that of the resource, without the path of the endpoint, or for the host of each request
            if that is this machine.

    Attributes:
        url: The URL, if it is known.
        is_served: True once an app serves the pages.

    Raises:
        DefinitionError: The URL is invalid.
    """

    def __init__(self, url: str | None = None) -> None:
        self.is_served = False
        self.url = None if url is None else require_url(url, "public_url").rstrip("/")
        if self.url is not None and "?" in self.url:
            raise DefinitionError(f"public_url is a URL without a query, not {url!r}")

    def bind(self, resource_url: str | None, endpoint_path: str) -> None:
        """Take the URL of the resource, unless another was given."""
        self.is_served = True
        if self.url is None and resource_url is not None:
            self.url = resource_url.rstrip("/").removesuffix(endpoint_path.rstrip("/")).rstrip("/")

    def base(self, host: str | None) -> str:
        """Return the URL without a slash at its end.

        Args:
            host: ``Host`` of the request; None without one.

        Raises:
            ToolError: It is not known.
        """
        if self.url is not None:
            return self.url
        if host is not None and host_name(host) in _LOOPBACK:
            return f"http://{host}"
        raise ToolError(
            "this gateway does not know the URL under which browsers reach it; its operator sets --public-url"
        )

    def base_for(self, context: InvocationContext) -> str:
        """Return the URL for a caller; raises as `base`, and if the pages are not served."""
        if not self.is_served:
            raise ToolError(
                "this gateway has no pages to give it: serve it over HTTP, with authentication; start it again if the "
                "server is new in its configuration"
            )
        return self.base(context.headers.get("host"))
