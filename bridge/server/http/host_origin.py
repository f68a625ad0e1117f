"""Names: under which a server may be reached (Host), and from which pages (Origin).

Without this, any web page that a user visits could talk to a server on the user's own machine, by letting a name of
its own resolve to 127.0.0.1 (DNS rebinding; MCP, "Transports", security warning).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ALWAYS = ("localhost", "127.0.0.1", "[::1]")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>.+)")
_KEPT = 256


class Names:
    """Which ``Host`` and ``Origin`` headers are let in.

    localhost, 127.0.0.1, [::1] and the name that the server is bound to are always let in, on any port. An origin is
    also let in where it is the very host that the request was sent to.

    Args:
        bound: The host that the server listens on.
        hosts: Further hosts: ``name`` or ``name:*`` for any port, ``name:8080`` for one, ``*.example.com`` for all
            names under one, ``*`` for all there are.
        origins: Further origins: ``https://app.example.com``, with ``:8443`` for a port or ``:*`` for any,
            ``https://*.example.com``, ``*`` for all there are.

    Raises:
        ValueError: One of the hosts or origins is not written like that.
    """

    def __init__(self, bound: str, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        own = [_Pattern(host=name) for name in (*_ALWAYS, _bracketed(bound.lower()))]
        self._hosts = [*own, *map(_host_pattern, hosts)]
        allowed = list(map(_origin_pattern, origins))
        self._origins = [*own, *allowed]
        self.allows_some_origins = bool(allowed)
        """Whether pages of further origins may use the server."""
        # A server sees few names, and each of them often.
        self.admits_host = lru_cache(_KEPT)(self._admits_host)
        """Whether a ``Host`` header is let in."""
        self.admits_origin = lru_cache(_KEPT)(self._admits_origin)
        """Whether an ``Origin`` header is let in, given the ``Host`` header beside it."""
        self.allows_origin = lru_cache(_KEPT)(partial(_matches, allowed))
        """Whether an ``Origin`` header is one of the further ones."""

    def admit_plainly(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a request with these headers, none of which stood twice, is let in and no browser is to be told so.

        Args:
            headers: The headers by name.
        """
        host, origin = headers.get(b"host"), headers.get(b"origin")
        if host is None or not self.admits_host(name := host.decode("latin-1")):
            return False
        if not origin:
            return True
        page = origin.decode("latin-1")
        return self.admits_origin(page, name) and not self.allows_origin(page)

    def _admits_host(self, host: str) -> bool:
        found = _AUTHORITY.fullmatch(host.lower())
        return found is not None and any(one.matches("", found["host"], found["port"]) for one in self._hosts)

    def _admits_origin(self, origin: str, host: str) -> bool:
        found = _ORIGIN.fullmatch(origin.lower())
        is_host = found is not None and found["authority"] == host.lower()
        return (is_host and _AUTHORITY.fullmatch(host.lower()) is not None) or _matches(self._origins, origin)


def host_name(host: str) -> str:
    """A ``Host`` header without its port: what to pass to let it in."""
    found = _AUTHORITY.fullmatch(host.lower())
    return host if found is None else found["host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    host: str
    """A name, ``*.`` and a name, or ``*``."""
    port: str | None = "*"
    """A port, ``*`` for any, None for the one that a URL need not name."""
    scheme: str = ""
    """A URL's scheme; empty for any."""

    def matches(self, scheme: str, host: str, port: str | None) -> bool:
        if self.scheme not in {"", scheme} or self.port not in {"*", port}:
            return False
        name = host.removesuffix(".")
        if self.host.startswith("*."):
            return name.endswith(self.host[1:])
        return self.host in {"*", name}


def _matches(patterns: Iterable[_Pattern], origin: str) -> bool:
    found = _ORIGIN.fullmatch(origin.lower())
    if found is None:
        return any(one.host == "*" for one in patterns)
    authority = _AUTHORITY.fullmatch(found["authority"])
    if authority is None:
        return False
    return any(one.matches(found["scheme"], authority["host"], authority["port"]) for one in patterns)


def _host_pattern(entry: str) -> _Pattern:
    if entry == "*":
        return _Pattern(host="*")
    found = _AUTHORITY.fullmatch(_bracketed(entry.strip().lower().removesuffix(":*")))
    if found is None:
        raise ValueError(f"an allowed host is a name, with a port or without, like tools.example.com: not {entry!r}")
    return _Pattern(host=found["host"].removesuffix("."), port=found["port"] or "*")


def _origin_pattern(entry: str) -> _Pattern:
    if entry == "*":
        return _Pattern(host="*")
    written = entry.strip().lower().removesuffix("/")
    found = _ORIGIN.fullmatch(written.removesuffix(":*"))
    authority = None if found is None else _AUTHORITY.fullmatch(found["authority"])
    if found is None or authority is None:
        raise ValueError(f"an allowed origin has a scheme and a host, like https://app.example.com: not {entry!r}")
    port = "*" if written.endswith(":*") else authority["port"]
    return _Pattern(host=authority["host"], port=port, scheme=found["scheme"])


def _bracketed(host: str) -> str:
    """An IPv6 address as a URL writes it; anything else as it is."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
