"""What the tests of signing in share: an authorization server, a server that it guards, and a place for logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from bridge.client.auth.store import STATE_VARIABLE, LoginStore, login_key
from tests.client.auth import authority as authorities
from tests.client.auth import resource as resources
from tests.client.auth.proofs import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.client.auth.login import Login
    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource


@pytest.fixture
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where logins are kept, for this process and those that it starts."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def authority() -> Iterator[Authority]:
    """An authorization server."""
    with authorities.running() as authority:
        yield authority


@pytest.fixture
def resource(authority: Authority, state_folder: Path) -> Iterator[Resource]:
    """A server that it guards."""
    with resources.running(authority) as resource:
        yield resource


@pytest.fixture
def authority_judge(authority: Authority) -> Judge:
    """Who judges proofs at the authorization server, which then offers to bind tokens to a key."""
    authority.says = {"dpop_signing_alg_values_supported": ["ES256"]}
    authority.judge = Judge()
    return authority.judge


@pytest.fixture
def judge(authority_judge: Judge, resource: Resource) -> Judge:
    """Who judges proofs at the server, which then takes such tokens."""
    resource.judge = Judge()
    return resource.judge


async def browse(url: str) -> None:
    """Do as a person does who agrees."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def stored_login(url: str) -> Login:
    """What is kept of a login."""
    login = await LoginStore().load(login_key(url))
    assert login is not None
    return login


async def age(url: str, *, ends_at: float = 1.0) -> None:
    """Have the access token of a kept login end, by default long ago."""
    login = await stored_login(url)
    await LoginStore().save(login_key(url), login.model_copy(update={"expires_at": ends_at}))
