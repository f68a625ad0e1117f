"""Logins of callers at a server's authorization server: the page, tokens, renewal, step-up and revocation."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx
import pytest

from bridge.client import parse_config
from bridge.client.auth.errors import SignInError
from bridge.errors import DefinitionError
from bridge.gateway import Gateway
from bridge.gateway.credentials.broker import CredentialBroker
from bridge.gateway.credentials.grants import LoginGrant
from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import CredentialKey
from tests.client.auth import authority as authorities
from tests.gateway.credentials.seeing import ADA, BOB, Seeing, context_of, seeing, seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.client.auth.authority import Authority

pytestmark = pytest.mark.anyio

KEYS = [b"k" * 32]
CALLBACK = "http://127.0.0.1:1/connect/callback"
ADAS, BOBS = CredentialKey.of(ADA, "notes"), CredentialKey.of(BOB, "notes")


@pytest.fixture
def authority() -> Iterator[Authority]:
    with authorities.running() as authority:
        yield authority


@pytest.fixture
def server(authority: Authority) -> Iterator[Seeing]:
    with seeing() as server:
        server.authority = authority.origin
        server.accepted = set()
        yield server


@asynccontextmanager
async def opened(server: Seeing, file: str | Path = ":memory:") -> AsyncIterator[Gateway]:
    auth = {"type": "login", "per": "caller"}
    config = parse_config({"mcpServers": {"notes": {"url": server.url, "auth": auth}}})
    broker = CredentialBroker(SqliteCredentialStore(file, CredentialSeal(KEYS)))
    with anyio.fail_after(60):
        async with Gateway(config.servers.values(), broker=broker) as gateway:
            yield gateway


def grant_of(gateway: Gateway) -> LoginGrant:
    assert gateway.broker is not None
    grant = gateway.broker.grants["notes"]
    assert isinstance(grant, LoginGrant)
    return grant


async def redirected(page: str) -> dict[str, str]:
    """Open the page of the authorization server as a browser; return the parameters of its redirect."""
    async with httpx.AsyncClient() as http:
        answer = await http.get(page)
    assert answer.headers["location"].startswith(CALLBACK)
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


async def log_in(gateway: Gateway, server: Seeing, key: CredentialKey, *, scope: str | None = None) -> str:
    """Log a caller in; return its access token, which the server accepts from now on."""
    grant = grant_of(gateway)
    state = f"state-of-{key.subject}"
    parameters = await redirected(await grant.start(key, CALLBACK, state, scope=scope))
    assert parameters["state"] == state
    credential = await grant.finish(key, parameters)
    assert gateway.broker is not None
    await gateway.broker.save(key, credential)
    assert credential.value is not None
    assert server.accepted is not None
    server.accepted.add(f"Bearer {credential.value}")
    return credential.value


async def test_each_caller_logs_in_once_and_after_a_restart_too(
    server: Seeing, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "credentials.db"
    async with opened(server, file) as gateway:
        assert "you have not connected it yet" in await seen(gateway, ADA)
        ada = await log_in(gateway, server, ADAS)
        assert "you have not connected it yet" in await seen(gateway, BOB)
        bob = await log_in(gateway, server, BOBS)
        assert ada != bob
        for nonce in range(20):
            assert await seen(gateway, ADA, nonce) == f"Bearer {ada} {nonce}"
            assert await seen(gateway, BOB, nonce) == f"Bearer {bob} {nonce}"
    assert len(authority.registered) == 1  # one client for all callers
    assert ada.encode() not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    async with opened(server, file) as gateway:
        assert await seen(gateway, ADA) == f"Bearer {ada} 0"


async def test_one_refresh_for_all_calls_and_replicas_that_wait(
    server: Seeing, authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "credentials.db"
    async with opened(server, file) as first, opened(server, file) as second:
        await log_in(first, server, ADAS)
        assert "Bearer" in await seen(first, ADA)
        assert "Bearer" in await seen(second, ADA)
        server.accepted = None
        authority.grants.clear()
        assert first.broker is not None
        credential = await first.broker.load(ADAS)
        assert credential is not None
        assert credential.login is not None
        expired = credential.login.model_copy(update={"expires_at": 1.0})
        await first.broker.store.put(ADAS, credential.model_copy(update={"login": expired}))
    async with opened(server, file) as first, opened(server, file) as second:
        found: set[str] = set()

        async def call(gateway: Gateway) -> None:
            found.add(await seen(gateway, ADA))

        async with anyio.create_task_group() as tasks:
            for gateway in (first, second) * 5:
                tasks.start_soon(call, gateway)
    assert authority.grants == ["refresh_token"]
    assert len(found) == 1
    assert found != {f"Bearer {expired.access_token} 0"}


async def test_a_login_whose_refresh_is_refused_has_to_be_made_again(server: Seeing, authority: Authority) -> None:
    async with opened(server) as gateway:
        await log_in(gateway, server, ADAS)
        bob = await log_in(gateway, server, BOBS)
        assert server.accepted is not None
        server.accepted = {f"Bearer {bob}"}
        authority.refuses = "invalid_grant"
        assert "it refused your credential" in await seen(gateway, ADA)
        authority.refuses = None
        assert "you have not connected it yet" in await seen(gateway, ADA)
        assert await seen(gateway, BOB) == f"Bearer {bob} 0"


async def test_a_missing_scope_is_asked_for_and_the_login_stays(server: Seeing, authority: Authority) -> None:
    async with opened(server) as gateway:
        ada = await log_in(gateway, server, ADAS)
        server.accepted, server.scope = set(), "write"
        assert "your login lacks a required scope (write)" in await seen(gateway, ADA)
        server.accepted, server.scope = {f"Bearer {ada}"}, None
        assert await seen(gateway, ADA) == f"Bearer {ada} 0"
        wider = await log_in(gateway, server, ADAS, scope="write")
        assert authority.scopes[-1] == "write"
        server.accepted = {f"Bearer {wider}"}
        assert await seen(gateway, ADA) == f"Bearer {wider} 0"


async def test_forgetting_revokes_the_tokens(server: Seeing, authority: Authority) -> None:
    async with opened(server) as gateway:
        ada = await log_in(gateway, server, ADAS)
        assert gateway.broker is not None
        assert await gateway.broker.forget(ADAS)
        assert ada in authority.revoked
        assert "you have not connected it yet" in await seen(gateway, ADA)


@pytest.mark.parametrize(
    "change", [{"iss": "https://evil.example"}, {"state": "of-another"}, {"error": "access_denied"}]
)
async def test_a_redirect_that_is_not_the_expected_one_gives_no_credential(
    server: Seeing, authority: Authority, change: dict[str, str]
) -> None:
    async with opened(server) as gateway:
        grant = grant_of(gateway)
        parameters = await redirected(await grant.start(ADAS, CALLBACK, "one"))
        with pytest.raises(SignInError):
            await grant.finish(ADAS, parameters | change)
    assert authority.grants == []


async def test_a_login_is_finished_once_and_only_by_the_caller_who_started_it(
    server: Seeing, authority: Authority
) -> None:
    async with opened(server) as gateway:
        grant = grant_of(gateway)
        parameters = await redirected(await grant.start(ADAS, CALLBACK, "one"))
        with pytest.raises(SignInError, match="another caller's"):
            await grant.finish(BOBS, parameters)
        assert authority.grants == []
        parameters = await redirected(await grant.start(ADAS, CALLBACK, "two"))
        await grant.finish(ADAS, parameters)
        with pytest.raises(SignInError, match="finished before"):
            await grant.finish(ADAS, parameters)


@pytest.mark.parametrize(
    "address",
    ["http://169.254.169.254/latest", "http://internal.example.com", "file:///etc/passwd", "javascript:alert(1)"],
)
async def test_a_server_cannot_make_the_gateway_request_other_addresses(
    server: Seeing, authority: Authority, address: str
) -> None:
    async with opened(server) as gateway:
        for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
            authority.says = {name: address}
            with pytest.raises(SignInError):
                await grant_of(gateway).start(ADAS, CALLBACK, "state")
        authority.says = {}
        server.authority = address
        with pytest.raises(SignInError):
            await grant_of(gateway).start(ADAS, CALLBACK, "state")


async def test_the_tools_that_a_caller_is_asked_for_have_the_grant_for_the_audit_log(server: Seeing) -> None:
    server.needs_credentials = True
    async with opened(server) as gateway:
        caller_features = gateway.features.caller_features
        assert caller_features is not None
        (tool,) = (await caller_features.load(context_of(ADA))).tools
        assert (tool.name, getattr(tool.executor, "grant", None)) == ("notes_connect", "login")


async def test_a_first_server_with_credentials_of_callers_is_refused_after_the_start(server: Seeing) -> None:
    entry = {"url": server.url, "auth": {"type": "login", "per": "caller"}}
    servers = parse_config({"mcpServers": {"notes": entry}}).servers.values()
    with anyio.fail_after(60):
        async with Gateway([]) as gateway:
            with pytest.raises(DefinitionError, match=r"'notes' needs a credential of each caller.*start it again"):
                await gateway.reconfigure(servers)
            assert gateway.status() == ()


async def test_a_server_that_is_not_configured_any_more_takes_no_credentials(server: Seeing) -> None:
    async with opened(server) as gateway:
        assert gateway.broker is not None
        await log_in(gateway, server, ADAS)
        await gateway.reconfigure([])
        assert gateway.broker.grants == {}
        assert [record.key for record in await gateway.broker.store.list()] == [ADAS]
