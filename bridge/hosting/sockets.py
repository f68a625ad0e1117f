"""Resolution of addresses, binding of sockets, URLs."""

from __future__ import annotations

import errno
import socket
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from bridge.hosting.process import HostingError

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKLOG = 2048
"""Maximum number of connections that wait to be accepted."""
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_REMEDIES = {
    errno.EADDRINUSE: "; choose another {port} (0 for a free one), or end the program that listens there",
    errno.EACCES: "; choose a {port} from 1024 on",
    errno.EADDRNOTAVAIL: "; choose an address of this machine, such as 127.0.0.1",
}
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - not bound here

Address = tuple[int, tuple[Any, ...]]
"""Address family and address."""


def resolve(host: str, port: int) -> list[Address]:
    """Resolve the addresses of a host, each once.

    Raises:
        HostingError: The host cannot be resolved.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise HostingError(f"cannot listen on {host!r}: {_reason(error)}") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def addresses_of(sockets: Sequence[socket.socket]) -> list[Address]:
    """Addresses of bound sockets."""
    return [(each.family, each.getsockname()) for each in sockets]


def are_loopback(addresses: Sequence[Address]) -> bool:
    """True if the addresses are reachable only from this machine."""
    return all(ip_address(address[0].partition("%")[0]).is_loopback for _, address in addresses)


def bind(addresses: Sequence[Address], setting: str = "port") -> list[socket.socket]:
    """Bind a socket to each address, with the same port; unsupported families are skipped.

    Args:
        addresses: The addresses.
        setting: Name of the setting of the port, for errors.

    Raises:
        HostingError: An address cannot be bound; the message names it.
    """
    bound: list[socket.socket] = []
    refusal = None
    for family, address in addresses:
        port = bound[0].getsockname()[1] if bound else address[1]
        target = (address[0], port, *address[2:])
        try:
            bound.append(_bound(family, target))
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, "").format(port=setting)
            refusal = HostingError(f"cannot listen on {_authority(str(address[0]), port)}: {_reason(error)}{remedy}")
            if error.errno not in _NO_SUCH_FAMILY:
                for each in bound:
                    each.close()
                raise refusal from error
    if not bound:
        assert refusal is not None
        raise refusal
    return bound


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    # asyncio sets TCP_NODELAY only for sockets with an explicit protocol.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def url_of(host: str, port: int, path: str) -> str:
    """URL of a path on a host."""
    return f"http://{_authority(host, port)}{path}"


def connectable_host(host: str) -> str:
    """Host for clients on this machine, if the server listens on all addresses."""
    return _ANYWHERE.get(host, host)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
