"""Fixtures of the tests of signing in: an authorization server, a server that trusts it, and a folder for logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bridge import ClientCredentials, HttpTransport, OAuthLogin, ServerConfig
from bridge.client import Connection
from bridge.client.auth.sign_in import SignIn
from bridge.client.auth.store import LoginStore, login_key
from bridge.private_files import STATE_VARIABLE
from tests.client.auth import authority as authorities
from tests.client.auth import resource as resources
from tests.client.auth.proofs import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.client.auth.grants import Grant
    from bridge.client.auth.login import Login
    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource

DEADLINE_SECONDS = 60


@pytest.fixture
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of logins, for this process and those that it starts."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def authority() -> Iterator[Authority]:
    """An authorization server."""
    with authorities.running() as authority:
        yield authority


@pytest.fixture
def resource(authority: Authority, state_folder: Path) -> Iterator[Resource]:
    """A server that trusts the authorization server."""
    with resources.running(authority) as resource:
        yield resource


@pytest.fixture
def authority_judge(authority: Authority) -> Judge:
    """Verifier of proofs at the authorization server, which then offers to bind tokens to a key."""
    authority.says = {"dpop_signing_alg_values_supported": ["ES256"]}
    authority.judge = Judge()
    return authority.judge


@pytest.fixture
def judge(authority_judge: Judge, resource: Resource) -> Judge:
    """Verifier of proofs at the server, which then accepts such tokens."""
    resource.judge = Judge()
    return resource.judge


async def browse(url: str) -> None:
    """Open the page as a user does who agrees."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def log_in(url: str) -> None:
    """Log in as a user who agrees."""
    with anyio.fail_after(DEADLINE_SECONDS):
        await SignIn(url, OAuthLogin(), show_page=browse).log_in()


async def sum_by(url: str, grant: Grant | None = None) -> object:
    """Call the tool that adds 1 and 2, with a grant; None for the stored login."""
    config = ServerConfig(name="guarded", transport=HttpTransport(url, auth=grant))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(config) as connection:
            return (await connection.call_tool("add", {"a": 1, "b": 2}))["structuredContent"]["result"]


def program_with_key(authority: Authority) -> ClientCredentials:
    """Return the grant of a program that signs with a key that the authorization server knows."""
    key = authority.client_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return ClientCredentials(client_id="program", private_key=key, signing_algorithm="ES256", issuer=authority.origin)


async def stored_login(url: str) -> Login:
    """Return the stored login."""
    login = await LoginStore().load(login_key(url))
    assert login is not None
    return login


async def age(url: str, *, ends_at: float = 1.0) -> None:
    """Let the access token of a stored login expire, by default long ago."""
    login = await stored_login(url)
    await LoginStore().save(login_key(url), login.model_copy(update={"expires_at": ends_at}))
