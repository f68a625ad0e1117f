from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import OAuthLogin
from bridge.client.auth.errors import SignInError
from bridge.client.auth.sign_in import SignIn
from tests.client.auth.conftest import browse

if TYPE_CHECKING:
    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 60
OIDC_METADATA = {
    "jwks_uri": "https://keys.example/keys",
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["ES256"],
}


async def log_in(url: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        await SignIn(url, OAuthLogin(), show_page=browse).log_in()


# --- PKCE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["oauth-authorization-server", "openid-configuration"])
@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_an_authorization_server_that_does_not_declare_pkce_is_refused_before_anything_is_sent(
    authority: Authority, resource: Resource, kind: str, methods: list[str] | None
) -> None:
    authority.metadata_path = f"/.well-known/{kind}"
    authority.says = {**OIDC_METADATA, "code_challenge_methods_supported": methods}
    with pytest.raises(SignInError, match=rf"'{re.escape(authority.origin)}/?' does not say that it supports PKCE"):
        await log_in(resource.url)
    assert (authority.registered, authority.scopes, authority.grants) == ({}, [], [])


async def test_an_authorization_server_that_does_not_declare_pkce_any_more_is_refused_a_known_client(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    authority.says = {"code_challenge_methods_supported": None}
    with pytest.raises(SignInError, match="PKCE"):
        await log_in(resource.url)
    assert (len(authority.scopes), authority.grants) == (1, ["authorization_code"])


async def test_openid_metadata_that_declares_pkce_will_do(authority: Authority, resource: Resource) -> None:
    authority.metadata_path = "/.well-known/openid-configuration"
    authority.says = OIDC_METADATA
    await log_in(resource.url)
    assert authority.grants == ["authorization_code"]
