"""DPoP: the key that a login's tokens are bound to, and the proofs of having it (RFC 9449; MCP, SEP-1932).

A proof is good for one request, of which it names the method and the URL, and the token. It says nothing of the
content: MCP takes RFC 9449 as it is.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from base64 import urlsafe_b64encode
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bridge.client.auth.errors import SignInError

if TYPE_CHECKING:
    import httpx2
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM: Final = "ES256"
"""What proofs are signed with, as JSON Web Algorithms call it."""
USE_NONCE: Final = "use_dpop_nonce"
"""The error of who wants a nonce in the next proof (RFC 9449, 8 and 9)."""
BAD_PROOF: Final = "invalid_dpop_proof"
"""The error of who does not take a proof (RFC 9449, 5 and 7.1)."""

_PROOF_HEADER = "DPoP"
_NONCE_HEADER = "DPoP-Nonce"
_PUBLIC_PARTS = ("crv", "kty", "x", "y")
"""In the order of RFC 7638."""


class ProofKey(BaseModel):
    """A pair of keys on the curve P-256, as a JSON Web Key (RFC 7518, 6.2). Its repr shows nothing secret."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)

    kty: Literal["EC"] = "EC"
    crv: Literal["P-256"] = "P-256"
    x: str
    y: str
    d: str = Field(repr=False)

    @classmethod
    def generated(cls) -> ProofKey:
        """A new one."""
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - slow to load, and seldom needed
        from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - as above

        return cls.model_validate(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True))

    @model_validator(mode="after")
    def _is_a_pair(self) -> ProofKey:
        assert self._signing_key is not None
        return self

    @cached_property
    def _signing_key(self) -> EllipticCurvePrivateKey:
        from jwt import InvalidKeyError  # noqa: PLC0415 - as above
        from jwt.algorithms import ECAlgorithm  # noqa: PLC0415 - as above

        try:
            key: Any = ECAlgorithm.from_jwk(self.model_dump())
        except (InvalidKeyError, ValueError):
            raise ValueError("no pair of keys on the curve P-256") from None
        signing_key: EllipticCurvePrivateKey = key
        return signing_key

    @cached_property
    def public(self) -> dict[str, str]:
        """What everybody may know of it, as a JSON Web Key."""
        return self.model_dump(include=set(_PUBLIC_PARTS))

    @property
    def thumbprint(self) -> str:
        """What authorization servers know it by, ``jkt`` (RFC 7638)."""
        return thumbprint(self.public)

    def proof(self, method: str, url: httpx2.URL, *, token: str | None = None, nonce: str | None = None) -> str:
        """A proof for one request (RFC 9449, 4.2).

        Args:
            method: The request's.
            url: Where it goes.
            token: The access token in it; None for a request for tokens.
            nonce: What the server wants to find in the proof; None for nothing.
        """
        import jwt  # noqa: PLC0415 - as above

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
    """What servers want to find in the next proof that they get: the last nonce of each origin (RFC 9449, 8.2)."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, bytes], str] = {}

    def at(self, url: httpx2.URL) -> str | None:
        """The nonce for a server; None where it has said none."""
        return self._last.get((url.scheme, url.netloc))

    def learn(self, response: httpx2.Response) -> bool:
        """Remember what an answer says; returns whether it says anything."""
        nonce = response.headers.get(_NONCE_HEADER)
        if nonce:
            url = response.request.url
            self._last[url.scheme, url.netloc] = nonce
        return bool(nonce)


def add_proof(request: httpx2.Request, key: ProofKey, nonces: Nonces, token: str | None = None) -> None:
    """Put a new proof into a request, and the token that it is about.

    Args:
        request: What is to be sent, now and once.
        key: The key that the token is bound to, or that tokens are to be bound to.
        nonces: What servers want to find in it.
        token: The access token; None for a request for tokens.
    """
    if token is not None:
        request.headers["Authorization"] = f"DPoP {token}"
    nonce = nonces.at(request.url)
    request.headers[_PROOF_HEADER] = key.proof(request.method, request.url, token=token, nonce=nonce)


def refused_proof(who: str, error: str) -> SignInError:
    """What is told where somebody does not take a proof.

    Args:
        who: The one who does not.
        error: Its error.
    """
    if error == USE_NONCE:
        return SignInError(f"{who} wants another nonce in the proof (DPoP) than it gave", is_permanent=False)
    return SignInError(f"{who} refuses the proof (DPoP) of a request ({error})", hint="look whether the clock is right")


def digest(text: str) -> str:
    """The SHA-256 of a text, as JSON Web Tokens write it."""
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def thumbprint(public: dict[str, str]) -> str:
    """The thumbprint of a public key on a curve (RFC 7638)."""
    return digest(json.dumps({part: public[part] for part in _PUBLIC_PARTS}, separators=(",", ":")))
