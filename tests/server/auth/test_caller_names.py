from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp.server.auth.provider import AccessToken

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, Introspection, JwtVerifier, TokenRefusedError
from tests.server import http_server as http
from tests.server.auth.guarded import talking, toolbox
from tests.server.auth.issuer import AUDIENCE, CLIENT, issuing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.auth.issuer import Issuer

pytestmark = pytest.mark.anyio

SECRET = "0123456789abcdef"


class Foreign:
    """A verifier of a program: a token is the name of its caller."""

    async def verify_token(self, token: str) -> AccessToken | None:
        client, _, subject = token.partition("/")
        return AccessToken(token=token, client_id=client, subject=subject or None, scopes=[])


class Naming(Foreign):
    """A verifier whose tokens have an issuer."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        found = await super().verify_token(token)
        return found and found.model_copy(update={"claims": {"iss": self._issuer}})


async def name(auth: Auth, token: str) -> str:
    found = await auth.verify_token(token)
    assert found is not None
    return auth.name_of(found)


def asked(of: Issuer, **options: Any) -> Introspection:
    return Introspection(f"{of.url}/introspect", *CLIENT, audience=AUDIENCE, **options)


async def test_whom_one_issuer_calls_something_is_called_that(issuer: Issuer) -> None:
    issuer.active["opaque"] = issuer.claims(active=True)
    auth = Auth(ApiKeys(ApiKey("ci", SECRET)), JwtVerifier(issuer.url, AUDIENCE), asked(issuer, issuer=issuer.url))
    assert [await name(auth, token) for token in (SECRET, issuer.token(), "opaque")] == ["ci", "ada", "ada"]


async def test_one_subject_at_two_issuers_is_two_callers(issuer: Issuer) -> None:
    with issuing() as other:
        auth = Auth(*(JwtVerifier(each.url, AUDIENCE) for each in (issuer, other)), ApiKeys(ApiKey("ada", SECRET)))
        names = [await name(auth, token) for token in (issuer.token(), other.token(), SECRET)]
        assert names == [f"ada@{issuer.url}", f"ada@{other.url}", "ada"]


async def test_one_subject_at_two_issuers_of_which_one_is_asked_is_two_callers(issuer: Issuer) -> None:
    with issuing() as other:
        issuer.active["opaque"] = issuer.claims(iss=None, active=True)
        auth = Auth(JwtVerifier(other.url, AUDIENCE), asked(issuer))
        names = [await name(auth, token) for token in (other.token(), "opaque")]
        assert names == [f"ada@{other.url}", f"ada@{issuer.url}/introspect"]


async def test_nobody_is_taken_at_his_word_for_an_issuer_that_somebody_else_vouches_for(issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), Naming(issuer.url))
    assert await name(auth, issuer.token()) == f"ada@{issuer.url}"
    assert await name(auth, "app/ada") == "ada@Naming"


async def test_who_names_no_issuer_is_told_apart_by_what_verifies() -> None:
    class Cautious(Foreign):
        async def verify_token(self, token: str) -> AccessToken | None:
            return None if token == "app/ada" else await super().verify_token(token)

    auth = Auth(Cautious(), Foreign())
    assert [await name(auth, token) for token in ("app/ada", "app/bob")] == ["ada@Foreign", "bob@Cautious"]
    found = [await auth.verify_token(token) for token in ("app/ada", "app/bob")]
    assert [each and each.claims for each in found] == [{"iss": "Foreign"}, {"iss": "Cautious"}], "sessions go by it"


async def test_a_verifier_alone_may_be_of_several_issuers() -> None:
    assert await name(Auth(Naming("https://a.example")), "app/ada") == "ada@https://a.example"
    assert await name(Auth(Foreign()), "app/ada") == "ada"


async def test_a_client_that_acts_for_itself_is_no_subject(issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE))
    tokens = [issuer.token(sub=None), issuer.token(sub="app"), issuer.token(sub="client:app")]
    assert [await name(auth, token) for token in tokens] == ["client:app", "app", "subject:client:app"]
    assert await name(auth, issuer.token(sub="subject:client:app")) == "subject:subject:client:app"


async def test_a_token_of_an_issuer_that_is_called_as_a_key_is_still_refused() -> None:
    auth = Auth(ApiKeys(ApiKey("ada@Foreign", SECRET)), Foreign(), Naming("https://a.example"))
    with pytest.raises(TokenRefusedError, match="has the name of another caller"):
        await auth.verify_token("app/ada")


@pytest.mark.parametrize("kind", ["modern", "handshake"])
def test_tools_memories_and_limits_go_by_the_name(serving: Callable[..., str], issuer: Issuer, kind: str) -> None:
    with issuing() as other:
        verifiers = [JwtVerifier(each.url, AUDIENCE) for each in (issuer, other)]
        origin = serving(http_app(toolbox(), auth=Auth(*verifiers)))
        names = [f"ada@{issuer.url}", f"ada@{other.url}", f"client:app@{issuer.url}"]
        for token, expected in zip([issuer.token(), other.token(), issuer.token(sub=None)], names, strict=True):
            with talking(kind, origin, token) as peer:
                for _ in range(2):  # once when it is verified, and once from the cache
                    told = peer.ask(http.request("tools/call", {"name": "whoami", "arguments": {}}))
                    told = told["result"]["structuredContent"]
                    assert (told["name"], told["memory"]) == (expected, expected)
