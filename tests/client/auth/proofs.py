"""A verifier of proofs of possession (RFC 9449, 4.3), which shares no code with the client's implementation."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_AGE_SECONDS = 300


class Judge:
    """Verifies the proofs that one server receives.

    Attributes:
        nonce: Required nonce; None for none.
        nonces: The next values of `nonce`, each set after a valid proof.
        refuses: True to refuse every proof.
        faults: Faults of the refused proofs.
        proofs: Claims of the accepted proofs.
    """

    def __init__(self) -> None:
        self.nonce: str | None = None
        self.nonces: list[str] = []
        self.refuses = False
        self.faults: list[str] = []
        self.proofs: list[dict[str, Any]] = []

    def error_in(self, proof: str | None, method: str, url: str, token: str | None = None) -> str | None:
        """Return the error for a proof; None if it is valid."""
        fault = "refused" if self.refuses else self._fault_in(proof or "", method, url, token)
        if fault is None:
            self.proofs.append(claims_of(proof or ""))
            self.nonce = self.nonces.pop(0) if self.nonces else self.nonce
            return None
        self.faults.append(fault)
        return "use_dpop_nonce" if fault == "nonce" else "invalid_dpop_proof"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of every response."""
        return {"DPoP-Nonce": self.nonce} if self.nonce is not None else {}

    def _fault_in(self, proof: str, method: str, url: str, token: str | None) -> str | None:
        if proof.count(".") != 2:
            return "no proof"
        header, claims = parts_of(proof)
        if (header.get("typ"), header.get("alg")) != ("dpop+jwt", "ES256") or set(header["jwk"]) != set("xy") | KINDS:
            return "header"
        if not is_signed(proof):
            return "signature"
        facts = {
            "htm": claims["htm"] == method,
            "htu": claims["htu"] == url,
            "iat": abs(time.time() - claims["iat"]) < MAX_AGE_SECONDS,
            "jti": claims["jti"] not in {known["jti"] for known in self.proofs},
            "ath": claims.get("ath") == (hashed(token) if token is not None else None),
            "nonce": claims.get("nonce") == self.nonce,
        }
        return next((name for name, holds in facts.items() if not holds), None)


KINDS = {"kty", "crv"}


def parts_of(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims."""
    header, claims, _ = proof.split(".")
    return json.loads(decoded(header)), json.loads(decoded(claims))


def claims_of(proof: str) -> dict[str, Any]:
    return parts_of(proof)[1]


def is_signed(proof: str) -> bool:
    """Return True if it is signed with the key that it names."""
    signed, _, signature = proof.rpartition(".")
    key, raw = parts_of(proof)[0]["jwk"], decoded(signature)
    x, y = (int.from_bytes(decoded(key[part]), "big") for part in "xy")
    numbers = utils.encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    try:
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        public.verify(numbers, signed.encode(), ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def thumbprint_of(proof: str) -> str:
    """Return the thumbprint of the key that a proof names (RFC 7638)."""
    key: Mapping[str, str] = parts_of(proof)[0]["jwk"]
    return hashed('{{"crv":"{crv}","kty":"{kty}","x":"{x}","y":"{y}"}}'.format(**key))


def hashed(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
