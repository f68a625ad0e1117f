"""Requests that a general HTTP client sends, as it does through a proxy."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import httpx2

from bridge.client import HttpTransport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridge.client import ServerConfig


class OtherAuth(httpx2.Auth):
    """The same authentication as of another library."""

    def __init__(self, auth: httpx2.Auth) -> None:
        self._auth = auth

    def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request."""
        return self._auth.async_auth_flow(request)


class ClientTransport(HttpTransport):
    """Transport with authentication of another library, which needs the general client."""

    def sign_in(self) -> httpx2.Auth:
        """Return the usual authentication."""
        return OtherAuth(super().sign_in() or httpx2.Auth())


def sent_by(config: ServerConfig, *, own: bool) -> ServerConfig:
    """Return a configuration whose requests are sent over own connections, or by the general client."""
    transport = config.transport
    assert isinstance(transport, HttpTransport)
    if own:
        return config
    settings = {field.name: getattr(transport, field.name) for field in fields(transport)}
    return replace(config, transport=ClientTransport(**settings))
