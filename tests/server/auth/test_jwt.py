from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import anyio
import jwt
import pytest
from anyio.to_thread import run_sync
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt import InsecureKeyLengthWarning

from bridge.errors import DefinitionError
from bridge.server.auth import IssuerUnavailableError, JwtVerifier, TokenRefusedError
from bridge.server.auth.issuer import Issuer as RemoteIssuer
from bridge.server.auth.jwt import MAX_TOKEN_BYTES, KeySet
from tests.server.auth.issuer import AUDIENCE, unsigned

if TYPE_CHECKING:
    from tests.server.auth.issuer import Issuer

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60


def verifier(issuer: Issuer, **options: Any) -> JwtVerifier:
    return JwtVerifier(issuer.url, AUDIENCE, **options)


async def test_a_good_token_says_whose_it_is(issuer: Issuer) -> None:
    found = await verifier(issuer).verify_token(issuer.token(scope="read write", exp=int(time.time()) + 600))
    assert found is not None
    assert (found.client_id, found.subject, found.scopes) == ("app", "ada", ["read", "write"])
    assert found.claims is not None
    assert found.claims["iss"] == issuer.url
    assert found.keep_seconds == 60


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, ["a", "b"]),
        ({"scp": "a b"}, ["a", "b"]),
        ({"scp": ["a", "b", 5]}, ["a", "b"]),
        ({"scope": ["a"]}, ["a"]),
        ({"scope": 5}, []),
        ({}, []),
    ],
)
async def test_scopes_are_read_however_they_are_written(
    issuer: Issuer, claims: dict[str, Any], scopes: list[str]
) -> None:
    found = await verifier(issuer).verify_token(issuer.token(**claims))
    assert found is not None
    assert found.scopes == scopes


@pytest.mark.parametrize("audience", [AUDIENCE, AUDIENCE + "/", ["https://other.example.org", AUDIENCE]])
async def test_an_audience_may_be_one_of_several_and_end_with_a_slash(issuer: Issuer, audience: Any) -> None:
    assert await verifier(issuer).verify_token(issuer.token(aud=audience)) is not None


async def test_a_token_of_an_elliptic_curve_is_good(issuer: Issuer) -> None:
    issuer.elliptic("curve")
    assert await verifier(issuer).verify_token(issuer.token("curve", "ES256")) is not None


@pytest.mark.parametrize("algorithm", ["RS256", "PS256"])
async def test_an_rsa_key_under_2048_bits_is_refused(issuer: Issuer, algorithm: str) -> None:
    issuer.keys["short"] = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.warns(InsecureKeyLengthWarning):
        token = issuer.token("short", algorithm)
    for _ in range(2):  # the key is not kept, either
        with pytest.raises(TokenRefusedError, match="1024 bits long, which is below the minimum"):
            await verifier(issuer).verify_token(token)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aud": "https://other.example.org"}, "for another audience"),
        ({"aud": None}, "has no claim aud"),
        ({"iss": "https://other.example.org"}, "from another issuer"),
        ({"iss": None}, "has no claim iss"),
        ({"exp": int(time.time()) - 3600}, "has expired"),
        ({"exp": None}, "has no claim exp"),
        ({"exp": "soon"}, "is invalid|not a time"),
        ({"nbf": int(time.time()) + 3600}, "not valid yet"),
        ({"sub": None, "client_id": None}, "names no bearer"),
        ({"headers": {"typ": "logout+jwt"}}, "not an access token"),
        ({"headers": {"crit": ["x"], "x": 1}}, "not an access token|malformed"),
        ({"headers": {"kid": "unheard-of"}}, "a key that its issuer does not have"),
    ],
)
async def test_a_bad_token_is_refused_with_the_reason(issuer: Issuer, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenRefusedError, match=message):
        await verifier(issuer).verify_token(issuer.token(**changes))


async def test_clocks_may_be_a_little_apart(issuer: Issuer) -> None:
    now = int(time.time())
    token = issuer.token(exp=now - 10, nbf=now + 10)
    assert await verifier(issuer).verify_token(token) is not None
    with pytest.raises(TokenRefusedError, match=r"not valid yet|has expired"):
        await verifier(issuer, leeway_seconds=0).verify_token(token)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS1", "", "EdDSA2"])
async def test_an_algorithm_by_which_anybody_can_sign_is_refused(issuer: Issuer, algorithm: str) -> None:
    with pytest.raises(TokenRefusedError, match="signed by an algorithm that is not accepted"):
        await verifier(issuer).verify_token(unsigned(issuer.claims(), algorithm, "c2ln"))


async def test_the_public_key_is_no_secret_to_sign_by(issuer: Issuer) -> None:
    with pytest.warns(InsecureKeyLengthWarning):
        token = jwt.encode(issuer.claims(), b"modulus", "HS256", headers={"kid": "first"})
    with pytest.raises(TokenRefusedError, match="signed by an algorithm that is not accepted"):
        await verifier(issuer).verify_token(token)
    with pytest.raises(DefinitionError, match="the algorithms"):
        verifier(issuer, algorithms=["RS256", "HS256"])
    with pytest.raises(DefinitionError, match="the algorithms"):
        verifier(issuer, algorithms=["none"])


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "EC"},
        {"use": "enc"},
        {"alg": "PS256"},
        {"key_ops": ["encrypt"]},
    ],
)
async def test_a_key_that_is_for_something_else_signs_nothing(
    issuer: Issuer, other: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = issuer.key_set["keys"]
    monkeypatch.setattr(type(issuer), "key_set", {"keys": [key | other]})
    with pytest.raises(TokenRefusedError, match="does not have"):
        await verifier(issuer).verify_token(issuer.token())


@pytest.mark.parametrize("same", [{"use": "sig", "alg": "RS256", "key_ops": ["verify"]}, {}])
async def test_a_key_may_say_what_it_is_for(
    issuer: Issuer, same: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = issuer.key_set["keys"]
    monkeypatch.setattr(type(issuer), "key_set", {"keys": [key | same]})
    assert await verifier(issuer).verify_token(issuer.token()) is not None


async def test_a_signature_by_another_key_is_refused(issuer: Issuer) -> None:
    token = issuer.token()
    issuer.rotate("first")
    with pytest.raises(TokenRefusedError, match="signature or content"):
        await verifier(issuer).verify_token(token)
    good = issuer.token()
    with pytest.raises(TokenRefusedError, match="signature or content"):
        await verifier(issuer).verify_token(good[:-8] + "AAAAAAAA")


async def test_what_is_too_long_is_refused_unread(issuer: Issuer) -> None:
    with pytest.raises(TokenRefusedError, match="over 16384 bytes"):
        await verifier(issuer).verify_token(issuer.token(more="x" * MAX_TOKEN_BYTES))
    assert issuer.asked == []


@pytest.mark.parametrize("token", ["a.b.c", "..", "W10.W10.W10", "e30.e30.e30", "é.é.é", "W1tb." * 2, "." * 2])
async def test_what_is_malformed_is_refused(issuer: Issuer, token: str) -> None:
    with pytest.raises(TokenRefusedError):
        await verifier(issuer).verify_token(token)


async def test_what_is_no_signed_token_is_somebody_elses_to_judge(issuer: Issuer) -> None:
    assert await verifier(issuer).verify_token("an-api-key") is None


async def test_a_token_without_a_key_id_means_the_only_key(issuer: Issuer) -> None:
    token = jwt.encode(issuer.claims(), issuer.keys["first"], "RS256")
    assert await verifier(issuer).verify_token(token) is not None
    issuer.keys["second"] = issuer.keys["first"]
    with pytest.raises(TokenRefusedError, match="does not have"):
        await verifier(issuer).verify_token(token)


async def test_a_rotated_key_is_fetched_when_a_token_names_it(issuer: Issuer) -> None:
    found = verifier(issuer, refetch_seconds=0)
    await found.verify_token(issuer.token())
    old = issuer.token()
    issuer.rotate("second")
    assert await found.verify_token(issuer.token("second")) is not None
    with pytest.raises(TokenRefusedError, match="does not have"):
        await found.verify_token(old)


async def test_unknown_keys_do_not_have_the_issuer_asked_again_and_again(issuer: Issuer) -> None:
    found = verifier(issuer, jwks_url=f"{issuer.url}/keys")
    for _ in range(5):
        with pytest.raises(TokenRefusedError, match="does not have"):
            await found.verify_token(issuer.token(headers={"kid": "unheard-of"}))
    assert issuer.asked == ["/keys"]


async def test_many_who_wait_for_the_keys_have_them_fetched_once(issuer: Issuer) -> None:
    found, tokens = verifier(issuer, jwks_url=f"{issuer.url}/keys"), [issuer.token(sub=f"u{i}") for i in range(20)]
    async with anyio.create_task_group() as tasks:
        for token in tokens:
            tasks.start_soon(found.verify_token, token)
    assert issuer.asked == ["/keys"]


async def test_a_client_that_hangs_up_does_not_prevent_that_the_keys_are_fetched(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, get = verifier(issuer, jwks_url=f"{issuer.url}/keys"), RemoteIssuer.get

    async def hang_up_and_get(self: RemoteIssuer, url: str) -> Any:
        scope.cancel()
        return await get(self, url)

    monkeypatch.setattr(RemoteIssuer, "get", hang_up_and_get)
    with anyio.CancelScope() as scope:
        await found.verify_token(issuer.token())
    assert await found.verify_token(issuer.token()) is not None
    assert issuer.asked == ["/keys"]


async def test_keys_of_an_issuer_that_went_away_stay(issuer: Issuer) -> None:
    found = verifier(issuer, refetch_seconds=0)
    assert await found.verify_token(issuer.token()) is not None
    issuer.is_down = True
    assert await found.verify_token(issuer.token(sub="bob")) is not None
    with pytest.raises(IssuerUnavailableError, match="HTTP status 500"):
        await found.verify_token(issuer.token(headers={"kid": "newer"}))
    issuer.is_down = False
    with pytest.raises(TokenRefusedError, match="does not have"):
        await found.verify_token(issuer.token(headers={"kid": "newer"}))


async def test_without_any_keys_nobody_can_tell(issuer: Issuer) -> None:
    issuer.is_down = True
    found = verifier(issuer)
    for _ in range(2):
        with pytest.raises(IssuerUnavailableError, match="HTTP status 500"):
            await found.verify_token(issuer.token())


async def test_an_issuer_that_names_an_impossible_address_of_its_keys_is_asked_again(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.metadata = {"jwks_uri": "https://127.0.0.1:99999999/keys"}
    answer = issuer.answer

    def answer_better_the_next_time(*request: Any) -> tuple[int, Any]:
        answered = answer(*request)
        issuer.metadata = {}
        return answered

    monkeypatch.setattr(issuer, "answer", answer_better_the_next_time)
    remote = RemoteIssuer(issuer.url)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(KeySet(remote, None, refetch_seconds=0).keep_current)
        assert await run_sync(issuer.gave_keys.wait, DEADLINE_SECONDS)
        tasks.cancel_scope.cancel()
    await remote.aclose()
    assert "cannot be reached" in caplog.text


async def test_keys_are_fetched_before_they_are_needed(issuer: Issuer) -> None:
    found = verifier(issuer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.keep_current, lambda: None)
        assert await run_sync(issuer.gave_keys.wait, DEADLINE_SECONDS)
        assert await found.verify_token(issuer.token()) is not None
        tasks.cancel_scope.cancel()
    assert issuer.asked.count("/keys") == 1


async def test_metadata_of_another_issuer_is_not_believed(issuer: Issuer) -> None:
    issuer.metadata = {"issuer": "https://other.example.org"}
    with pytest.raises(IssuerUnavailableError, match=r"is the metadata of the issuer 'https://other\.example\.org'"):
        await verifier(issuer).verify_token(issuer.token())


@pytest.mark.parametrize("url", ["", "issuer", "ftp://x", "https://user:hunter2@x", "https://x/#y", "https://"])
def test_an_issuer_is_a_url(url: str) -> None:
    with pytest.raises(DefinitionError, match="an issuer is a") as caught:
        JwtVerifier(url, AUDIENCE)
    assert "hunter2" not in str(caught.value)


def test_an_audience_must_be_set() -> None:
    with pytest.raises(DefinitionError, match="tokens for any other service"):
        JwtVerifier("https://issuer.example.org", "")


@pytest.mark.parametrize(
    ("issuer_url", "jwks_url", "warnings"),
    [
        ("http://login.example.org", None, 1),
        ("https://login.example.org", "http://login.example.org/keys", 1),
        ("http://login.example.org", "http://192.0.2.1/keys", 2),
        ("https://login.example.org", "https://login.example.org/keys", 0),
        ("http://localhost:8080", "http://127.0.0.1:9/keys", 0),
        ("http://[::1]:8080", "http://keys.localhost/keys", 0),
    ],
)
def test_what_is_fetched_without_encryption_earns_a_warning(
    issuer_url: str, jwks_url: str | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    JwtVerifier(issuer_url, AUDIENCE, jwks_url=jwks_url)
    assert caplog.text.count("is reached without encryption") == warnings


async def test_an_issuer_with_encryption_names_no_keys_without() -> None:
    class Encrypted(RemoteIssuer):
        async def get(self, url: str) -> dict[str, Any]:
            assert url.startswith("https:"), "keys were fetched without encryption"
            return {"issuer": self.url, "jwks_uri": "http://login.example.org/keys"}

    with pytest.raises(IssuerUnavailableError, match="names a jwks_uri without encryption"):
        await KeySet(Encrypted("https://login.example.org"), None).find(None, "RS256")
