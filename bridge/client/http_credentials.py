"""Headers and credentials that a program supplies for servers; refused where no request would have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from bridge.client.connection.connection import Connection
from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection_pool import HeaderSupplier

_T = TypeVar("_T")
_REMEDY = "set variables of its environment in its configuration instead"


def require_headers_taken(servers: Sequence[ServerConfig | Connection], supplier: HeaderSupplier | None) -> None:
    """Refuse a header supplier if there are servers, and none of them is reached over HTTP.

    Raises:
        DefinitionError: No server would receive the headers.
    """
    configs = [each.config if isinstance(each, Connection) else each for each in servers]
    if supplier is None or not configs or any(each.transport.takes_headers for each in configs):
        return
    names = ", ".join(repr(each.name) for each in configs)
    raise DefinitionError(
        f"headers for calls have no effect, since none of the servers is reached over HTTP: {names}; leave them out "
        f"(headers_supplier, or forward_headers of a gateway), or {_REMEDY}"
    )


def credentials_for(config: ServerConfig, supplier: Callable[[ServerConfig], _T | None] | None, name: str) -> _T | None:
    """Return the credentials that a function supplies for a server.

    Raises:
        DefinitionError: There are some, and the server is not reached over HTTP.
    """
    found = None if supplier is None else supplier(config)
    if found is None or config.transport.takes_headers:
        return found
    raise DefinitionError(
        f"{name} returned credentials for the server {config.name!r}, which is not reached over HTTP; return None for "
        f"it, or {_REMEDY}"
    )
