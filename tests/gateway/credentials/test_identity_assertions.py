"""Identity assertions (enterprise-managed authorization): from a caller's token to one for the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import parse_config
from bridge.errors import DefinitionError
from bridge.gateway import Gateway
from tests.client.auth import authority as authorities
from tests.client.auth.authority import CLIENT_SECRET
from tests.gateway.credentials.seeing import Seeing, seeing, seen
from tests.gateway.credentials.test_exchange import person

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.auth.authority import Authority

pytestmark = pytest.mark.anyio


@pytest.fixture
def authority() -> Iterator[Authority]:
    with authorities.running() as authority:
        yield authority


@pytest.fixture
def server(authority: Authority) -> Iterator[Seeing]:
    with seeing() as server:
        server.authority = authority.origin
        yield server


def gateway_of(server: Seeing, authority: Authority, **settings: Any) -> Gateway:
    auth = {"type": "identity_assertion", "per": "caller", "idpTokenUrl": f"{authority.origin}/exchange", **settings}
    return Gateway(parse_config({"mcpServers": {"notes": {"url": server.url, "auth": auth}}}).servers.values())


@pytest.mark.parametrize("is_configured", [False, True], ids=["issuer named by the server", "configured issuer"])
async def test_a_callers_token_becomes_one_for_the_server(
    server: Seeing, authority: Authority, is_configured: bool
) -> None:
    settings = {"clientId": "workload"}
    if is_configured:
        settings = {"clientId": "gateway", "clientSecret": CLIENT_SECRET, "issuer": authority.origin}
        settings["clientAuthentication"] = "client_secret_post"
    with anyio.fail_after(60):
        async with gateway_of(server, authority, **settings) as gateway:
            found = await seen(gateway, person("ada"), token="id token")
            token = found.removeprefix("Bearer ").removesuffix(" 0")
            assert authority.claims(token, server.url) is not None
            assert await seen(gateway, person("ada"), token="id token") == found
            assert "refused to issue an assertion (HTTP 400)" in await seen(gateway, person("bob"), token="another")
    assert authority.grants == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert not any("id token" in str(request) for request in server.requests)


def test_a_secret_is_for_the_configured_issuer_alone(server: Seeing, authority: Authority) -> None:
    """A server could name an authorization server of its own, which would get the secret."""
    with pytest.raises(DefinitionError, match="needs the 'issuer' that gets the 'clientSecret'"):
        gateway_of(server, authority, clientId="gateway", clientSecret=CLIENT_SECRET)


def test_it_needs_a_client(server: Seeing, authority: Authority) -> None:
    with pytest.raises(DefinitionError, match="needs a 'clientId', or a public https URL"):
        gateway_of(server, authority)
