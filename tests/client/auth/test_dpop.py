from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm
from pydantic import ValidationError

from bridge.client.auth.dpop import Nonces, ProofKey, add_proof, digest, thumbprint
from tests.client.auth.proofs import Judge, claims_of, parts_of, thumbprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = ProofKey.generated()
URL = httpx2.URL("https://mcp.example.com/mcp")


def answer(url: str, nonce: str | None) -> httpx2.Response:
    headers = {"DPoP-Nonce": nonce} if nonce is not None else {}
    return httpx2.Response(200, headers=headers, request=httpx2.Request("POST", url))


# --- proofs ----------------------------------------------------------------------------------------------------------


@given(
    method=st.sampled_from(["POST", "GET", "DELETE"]), token=st.none() | st.from_regex(r"[\w.~+/-]+=*", fullmatch=True)
)
def test_a_proof_is_good_for_its_request(method: str, token: str | None) -> None:
    judge = Judge()
    assert judge.error_in(KEY.proof(method, URL, token=token), method, str(URL), token) is None


def test_each_proof_is_another_one() -> None:
    assert len({claims_of(KEY.proof("POST", URL))["jti"] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "url",
    [
        "https://mcp.example.com/mcp?team=a",
        "https://mcp.example.com/mcp#part",
        "https://me:hidden@mcp.example.com/mcp?key=hidden#part",
        "https://MCP.example.com:443/mcp",
    ],
)
def test_a_proof_names_the_url_without_what_is_not_the_place(url: str) -> None:
    assert claims_of(KEY.proof("POST", httpx2.URL(url)))["htu"] == "https://mcp.example.com/mcp"


def test_a_proof_shows_the_public_key_alone() -> None:
    header, claims = parts_of(KEY.proof("POST", URL))
    assert header == {"typ": "dpop+jwt", "alg": "ES256", "jwk": {"kty": "EC", "crv": "P-256", "x": KEY.x, "y": KEY.y}}
    assert set(claims) == {"jti", "htm", "htu", "iat"}


def test_a_token_is_digested_as_in_the_rfc() -> None:
    """RFC 9449, 7.1."""
    token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
    assert digest(token) == "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"


def test_a_key_has_the_thumbprint_of_the_rfc() -> None:
    """RFC 9449, 6.1."""
    public = {
        "kty": "EC",
        "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
        "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
        "crv": "P-256",
    }
    assert thumbprint(public) == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
    assert thumbprint_of(KEY.proof("POST", URL)) == KEY.thumbprint


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_read_as_it_was_kept() -> None:
    read = ProofKey.model_validate_json(KEY.model_dump_json())
    assert read == KEY
    assert thumbprint_of(read.proof("POST", URL)) == KEY.thumbprint


def test_two_keys_differ_and_no_repr_shows_the_private_part() -> None:
    assert ProofKey.generated() != KEY
    assert KEY.d not in repr(KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"d": ProofKey.generated().d},
        {"x": KEY.y, "y": KEY.x},
        {"x": "AQ"},
        {"d": ""},
        {"crv": "P-384"},
        {"kty": "RSA"},
        dict(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()), as_dict=True)),
    ],
)
def test_what_is_no_pair_of_keys_is_refused_and_not_shown(change: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        ProofKey.model_validate(KEY.model_dump() | dict(change))
    assert KEY.d not in str(caught.value)


# --- nonces ----------------------------------------------------------------------------------------------------------


def test_the_last_nonce_of_each_origin_goes_into_the_next_proof_for_it() -> None:
    nonces = Nonces()
    said = {"https://a.example/mcp": "first", "https://a.example/other": "last", "https://a.example:8443/": "another"}
    assert [nonces.learn(answer(url, nonce)) for url, nonce in said.items()] == [True, True, True]
    assert [nonces.learn(answer(url, None)) for url in said] == [False, False, False]
    shown = {}
    for url in ("https://a.example/mcp", "https://a.example:8443/mcp", "http://a.example/mcp"):
        request = httpx2.Request("POST", url)
        add_proof(request, KEY, nonces)
        shown[url] = claims_of(request.headers["DPoP"]).get("nonce")
    assert list(shown.values()) == ["last", "another", None]


def test_a_request_that_is_proved_again_has_one_proof_and_a_new_one() -> None:
    request = httpx2.Request("POST", URL)
    proofs = []
    for _ in range(2):
        add_proof(request, KEY, Nonces(), "token")
        proofs += request.headers.get_list("DPoP")
    assert request.headers["Authorization"] == "DPoP token"
    assert len(set(proofs)) == len(proofs) == 2
