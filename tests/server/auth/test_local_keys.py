from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID
from jwt import InsecureKeyLengthWarning
from jwt.algorithms import ECAlgorithm

from bridge.errors import DefinitionError
from bridge.server.auth import Auth, IssuerUnavailableError, JwtVerifier, TokenRefusedError
from bridge.testing import TokenSigner

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

ISSUER, AUDIENCE = "my-app", "my-tools"
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": 4_000_000_000}


def pem(key: Any) -> str:
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def jwk(key: ec.EllipticCurvePrivateKey, key_id: str) -> dict[str, Any]:
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id}


def elliptic() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(key: ec.EllipticCurvePrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = dt.datetime.now(dt.UTC)
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    return built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


async def subject(verifier: JwtVerifier, token: str) -> str | None:
    found = await verifier.verify_token(token)
    assert found is not None
    return found.subject


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256"),
        (elliptic(), "ES256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
async def test_a_token_is_verified_by_the_key_in_pem(key: Any, algorithm: str, tmp_path: Path) -> None:
    token = jwt.encode(CLAIMS, key, algorithm, headers={"kid": "any"})
    path = tmp_path / "key.pem"
    path.write_text(pem(key), encoding="ascii")
    for given in (pem(key), pem(key).encode(), path):
        assert await subject(JwtVerifier(ISSUER, AUDIENCE, public_key=given), token) == "ada"


async def test_a_certificate_has_a_key() -> None:
    key = elliptic()
    verifier = JwtVerifier(ISSUER, AUDIENCE, public_key=certificate(key))
    assert await subject(verifier, jwt.encode(CLAIMS, key, "ES256")) == "ada"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"aud": "other"}, "for another audience"),
        ({"iss": "other"}, "from another issuer"),
        ({"exp": 1}, "has expired"),
    ],
)
async def test_issuer_audience_and_expiry_are_checked(changes: dict[str, Any], message: str) -> None:
    key = elliptic()
    verifier = JwtVerifier(ISSUER, AUDIENCE, public_key=pem(key))
    with pytest.raises(TokenRefusedError, match=message):
        await verifier.verify_token(jwt.encode(CLAIMS | changes, key, "ES256"))


async def test_a_token_of_another_key_is_refused() -> None:
    verifier = JwtVerifier(ISSUER, AUDIENCE, public_key=pem(elliptic()))
    with pytest.raises(TokenRefusedError, match="signature or content is invalid"):
        await verifier.verify_token(jwt.encode(CLAIMS, elliptic(), "ES256"))
    with pytest.raises(TokenRefusedError, match="a key that its issuer does not have"):
        await verifier.verify_token(jwt.encode(CLAIMS, ed25519.Ed25519PrivateKey.generate(), "EdDSA"))


async def test_the_public_key_is_no_secret_to_sign_by() -> None:
    key = elliptic()
    with pytest.warns(InsecureKeyLengthWarning):
        token = jwt.encode(CLAIMS, b"secret", "HS256")
    with pytest.raises(TokenRefusedError, match="an algorithm that is not accepted"):
        await JwtVerifier(ISSUER, AUDIENCE, public_key=pem(key)).verify_token(token)
    with pytest.raises(DefinitionError, match="the algorithms"):
        JwtVerifier(ISSUER, AUDIENCE, public_key=pem(key), algorithms=["HS256"])


async def test_algorithms_may_be_fewer() -> None:
    key = elliptic()
    verifier = JwtVerifier(ISSUER, AUDIENCE, public_key=pem(key), algorithms=["RS256"])
    with pytest.raises(TokenRefusedError, match="an algorithm that is not accepted"):
        await verifier.verify_token(jwt.encode(CLAIMS, key, "ES256"))


async def test_a_set_of_keys_is_searched_by_the_key_id() -> None:
    one, two = elliptic(), elliptic()
    verifier = JwtVerifier(ISSUER, AUDIENCE, jwks={"keys": [jwk(one, "one"), jwk(two, "two"), {"kty": "oct"}]})
    assert await subject(verifier, jwt.encode(CLAIMS, two, "ES256", headers={"kid": "two"})) == "ada"
    with pytest.raises(TokenRefusedError, match="signature or content is invalid"):
        await verifier.verify_token(jwt.encode(CLAIMS, two, "ES256", headers={"kid": "one"}))


async def test_a_file_of_keys_is_read_again_when_a_token_names_a_new_key(tmp_path: Path) -> None:
    one, two = elliptic(), elliptic()
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk(one, "one")]}), encoding="utf-8")
    verifier = JwtVerifier(ISSUER, AUDIENCE, jwks=path, refetch_seconds=0)
    assert await subject(verifier, jwt.encode(CLAIMS, one, "ES256", headers={"kid": "one"})) == "ada"
    path.write_text(json.dumps({"keys": [jwk(two, "two")]}), encoding="utf-8")
    assert await subject(verifier, jwt.encode(CLAIMS, two, "ES256", headers={"kid": "two"})) == "ada"
    path.unlink()
    with pytest.raises(IssuerUnavailableError, match="the file of jwks cannot be read"):
        await verifier.verify_token(jwt.encode(CLAIMS, one, "ES256", headers={"kid": "one"}))
    assert await subject(verifier, jwt.encode(CLAIMS, two, "ES256", headers={"kid": "two"})) == "ada"


def private_pem() -> bytes:
    return elliptic().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"public_key": "a shared secret"}, "public_key is not in PEM.*a secret that both sides share is not accepted"),
        ({"public_key": private_pem()}, "public_key is a private key.*openssl pkey -in private.pem -pubout"),
        ({"public_key": pem(x25519.X25519PrivateKey.generate())}, "must be an RSA, EC or Ed25519 key"),
        ({"public_key": "-----BEGIN PUBLIC KEY-----\nx"}, "public_key cannot be read"),
        ({"public_key": 5}, "public_key is PEM, or the Path of a file, not int"),
        ({"jwks": {}}, "jwks is a set of keys"),
        ({"jwks": "keys.json"}, "the Path of a file"),
        ({"jwks": {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}}, "jwks has no public key.*but 'oct'"),
        ({"jwks": {"keys": []}}, "jwks has no public key.*but nothing"),
        ({"jwks": {"keys": [{"kty": "EC", "d": "x"}]}}, "jwks contains a private key"),
        ({"public_key": pem(elliptic()), "jwks_url": "https://x/keys"}, "public_key and jwks_url exclude each other"),
        ({"public_key": pem(elliptic()), "issuer": ""}, "issuer must be set"),
        ({"issuer": "my-app"}, "an issuer is an http"),
    ],
)
def test_keys_that_cannot_verify_are_refused_with_the_remedy(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as refused:
        JwtVerifier(**{"issuer": ISSUER, "audience": AUDIENCE, **options})
    assert "a shared secret" not in str(refused.value)


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="the file of public_key cannot be read"):
        JwtVerifier(ISSUER, AUDIENCE, public_key=tmp_path / "nowhere")
    huge = tmp_path / "huge"
    huge.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(DefinitionError, match="is over 1048576 bytes long"):
        JwtVerifier(ISSUER, AUDIENCE, jwks=huge)
    huge.write_bytes(b"{")
    with pytest.raises(DefinitionError, match="the file of jwks is not JSON"):
        JwtVerifier(ISSUER, AUDIENCE, jwks=huge)


def test_only_an_issuer_with_a_url_is_named_as_an_authorization_server() -> None:
    verifiers = [JwtVerifier(name, AUDIENCE, public_key=pem(elliptic())) for name in (ISSUER, "https://login.example")]
    assert Auth(*verifiers).authorization_servers == ("https://login.example",)


async def test_a_signer_for_tests_signs_tokens_that_its_verifier_accepts() -> None:
    signer = TokenSigner("https://login.example", "https://tools.example/mcp")
    token = signer.token("ada", scopes=["read", "write"], tenant="acme")
    found = await signer.verifier.verify_token(token)
    assert found is not None
    assert (found.subject, found.scopes) == ("ada", ["read", "write"])
    assert (found.claims or {})["tenant"] == "acme"
    for bad in (signer.token("ada", expires_in_seconds=-60), signer.token("ada", aud="other")):
        with pytest.raises(TokenRefusedError):
            await signer.verifier.verify_token(bad)
    with pytest.raises(TokenRefusedError, match="names no bearer"):
        await signer.verifier.verify_token(signer.token("ada", sub=None))
