"""DPoP keys and proofs (RFC 9449; MCP, SEP-1932).

A proof is valid for one request and one token; it covers the method and the URL, not the content.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from base64 import urlsafe_b64encode
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bridge.client.auth.errors import SignInError

if TYPE_CHECKING:
    import httpx2
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM: Final = "ES256"
"""JSON Web Algorithm of proofs."""
USE_NONCE: Final = "use_dpop_nonce"
"""Error code: the next proof needs a nonce (RFC 9449 sections 8 and 9)."""
BAD_PROOF: Final = "invalid_dpop_proof"
"""Error code: the proof is refused (RFC 9449 sections 5 and 7.1)."""

_PROOF_HEADER = "DPoP"
_NONCE_HEADER = "DPoP-Nonce"
_PUBLIC_PARTS = ("crv", "kty", "x", "y")
"""Members of the thumbprint, in the order of RFC 7638."""


class ProofKey(BaseModel):
    """P-256 key pair as a JSON Web Key (RFC 7518 section 6.2). Its repr hides the private key."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    kty: Literal["EC"] = "EC"
    crv: Literal["P-256"] = "P-256"
    x: str
    y: str
    d: str = Field(repr=False)

    @classmethod
    def generated(cls) -> ProofKey:
        """Generate a new key pair."""
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - slow to import, rarely needed
        from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - slow to import

        return cls.model_validate(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True))

    @model_validator(mode="after")
    def _is_a_pair(self) -> ProofKey:
        assert self._signing_key is not None
        return self

    @cached_property
    def _signing_key(self) -> EllipticCurvePrivateKey:
        from jwt import InvalidKeyError  # noqa: PLC0415 - slow to import
        from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - slow to import

        try:
            return cast("EllipticCurvePrivateKey", ECAlgorithm.from_jwk(self.model_dump()))
        except (InvalidKeyError, ValueError):
            raise ValueError("not a P-256 key pair") from None

    @cached_property
    def public(self) -> dict[str, str]:
        """The public key as a JSON Web Key."""
        return self.model_dump(include=set(_PUBLIC_PARTS))

    @property
    def thumbprint(self) -> str:
        """JWK thumbprint, ``jkt`` (RFC 7638)."""
        return thumbprint(self.public)

    def proof(self, method: str, url: httpx2.URL, *, token: str | None = None, nonce: str | None = None) -> str:
        """Create the proof for one request (RFC 9449 section 4.2); a token request has no token yet."""
        import jwt  # noqa: PLC0415 - slow to import

        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(),
            "htm": method,
            "htu": str(url.copy_with(userinfo=b"", query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = digest(token)
        if nonce is not None:
            claims["nonce"] = nonce
        return jwt.encode(claims, self._signing_key, ALGORITHM, headers={"typ": "dpop+jwt", "jwk": self.public})


class Nonces:
    """Last DPoP nonce of each origin (RFC 9449 section 8.2)."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, bytes], str] = {}

    def at(self, url: httpx2.URL) -> str | None:
        """Return the nonce of an origin; None if there is none."""
        return self._last.get((url.scheme, url.netloc))

    def learn(self, response: httpx2.Response) -> bool:
        """Store the nonce of a response; returns True if it has one."""
        nonce = response.headers.get(_NONCE_HEADER)
        if nonce:
            url = response.request.url
            self._last[url.scheme, url.netloc] = nonce
        return bool(nonce)


def add_proof(request: httpx2.Request, key: ProofKey, nonces: Nonces, token: str | None = None) -> None:
    """Add a new proof to a request, to be sent once, and the token that it is for; a token request has none yet."""
    if token is not None:
        request.headers["Authorization"] = f"DPoP {token}"
    nonce = nonces.at(request.url)
    request.headers[_PROOF_HEADER] = key.proof(request.method, request.url, token=token, nonce=nonce)


def refused_proof(who: str, error: str) -> SignInError:
    """Create the error for a refused proof."""
    if error == USE_NONCE:
        return SignInError(f"{who} rejects the nonce in the proof (DPoP) that it issued itself", is_permanent=False)
    return SignInError(f"{who} refuses the proof (DPoP) of a request ({error})", hint="check this machine's clock")


def digest(text: str) -> str:
    """SHA-256 of a text, base64url-encoded without padding."""
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def thumbprint(public: dict[str, str]) -> str:
    """JWK thumbprint of an elliptic-curve public key (RFC 7638)."""
    return digest(json.dumps({part: public[part] for part in _PUBLIC_PARTS}, separators=(",", ":")))
