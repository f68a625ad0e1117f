"""Public keys of an issuer that are given instead of fetched: one in PEM (RFC 7468), or a set of keys (RFC 7517)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from bridge.errors import DefinitionError
from bridge.text import short_repr

Keys = tuple[Mapping[str, Any], ...]
"""Keys as JWKs."""

_MAX_FILE_BYTES = 1024 * 1024
_FAMILIES = frozenset({"RSA", "EC", "OKP"})


def key_in_pem(given: str | bytes | Path) -> Keys:
    """Read a public key, or that of a certificate.

    Args:
        given: PEM, or the path of a file that contains it.

    Raises:
        DefinitionError: It is no public key, or the file cannot be read.
    """
    if not isinstance(given, str | bytes | Path):
        raise DefinitionError(f"public_key is PEM, or the Path of a file, not {type(given).__name__}")
    pem = _read(given, "public_key") if isinstance(given, Path) else given.encode() if isinstance(given, str) else given
    if b"PRIVATE KEY" in pem:
        raise DefinitionError(
            "public_key is a private key, with which this server could sign tokens; give the public key alone: "
            "openssl pkey -in private.pem -pubout"
        )
    if b"-----BEGIN" not in pem:  # the value may be a secret: leave it out of the message
        raise DefinitionError(
            "public_key is not in PEM, which begins with -----BEGIN PUBLIC KEY-----; a file is given as Path(…), and a "
            "secret that both sides share is not accepted"
        )
    try:
        if b"BEGIN CERTIFICATE" in pem:
            key: Any = x509.load_pem_x509_certificate(pem).public_key()
        else:
            key = load_pem_public_key(pem)
    except ValueError as error:
        raise DefinitionError(f"public_key cannot be read: {error}") from error
    match key:
        case rsa.RSAPublicKey():
            return (RSAAlgorithm.to_jwk(key, as_dict=True),)
        case ec.EllipticCurvePublicKey():
            return (ECAlgorithm.to_jwk(key, as_dict=True),)
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey():
            return (OKPAlgorithm.to_jwk(key, as_dict=True),)
    raise DefinitionError(f"public_key must be an RSA, EC or Ed25519 key, not {type(key).__name__}")


def keys_in_set(given: Mapping[str, Any] | Path) -> Keys:
    """Read a set of public keys.

    Args:
        given: The set, ``{"keys": […]}``, or the path of a file that contains it.

    Raises:
        DefinitionError: It has no public key, or one that is private, or the file cannot be read.
    """
    if isinstance(given, Path):
        try:
            given = json.loads(_read(given, "jwks"))
        except ValueError as error:
            raise DefinitionError(f"the file of jwks is not JSON: {error}") from error
    keys = given.get("keys") if isinstance(given, Mapping) else None
    if not isinstance(keys, list) or not all(isinstance(key, Mapping) for key in keys):
        raise DefinitionError('jwks is a set of keys, {"keys": […]}, or the Path of a file with one')
    public = tuple(key for key in keys if key.get("kty") in _FAMILIES)
    if any("d" in key for key in public):
        raise DefinitionError("jwks contains a private key, with which this server could sign tokens; leave out 'd'")
    if not public:
        kinds = sorted({short_repr(key.get("kty")) for key in keys})
        raise DefinitionError(f"jwks has no public key of type RSA, EC or OKP, but {', '.join(kinds) or 'nothing'}")
    return public


def is_key_set(path: Path) -> bool:
    """Return True if a file contains JSON rather than PEM.

    Raises:
        DefinitionError: It cannot be read.
    """
    return _read(path, "keys").lstrip()[:1] == b"{"


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DefinitionError(f"the file of {what} cannot be read: {error}") from error
    if len(content) > _MAX_FILE_BYTES:
        raise DefinitionError(f"the file of {what}, {path}, is over {_MAX_FILE_BYTES} bytes long")
    return content
