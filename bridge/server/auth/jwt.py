"""Signed tokens (JSON Web Tokens as access tokens: RFC 9068, RFC 8725) of one issuer."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import jwt
from anyio import create_task_group

from bridge.errors import DefinitionError
from bridge.server.auth.issuer import Issuer, checked_url, warn_if_plain
from bridge.server.auth.jwks import REFETCH_SECONDS, KeySet
from bridge.server.auth.refusals import TokenExpiredError, TokenRefusedError
from bridge.server.auth.token import VerifiedToken
from bridge.server.auth.tokens import audiences_of, bearer_in, scopes_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
"""The algorithms that a token may be signed by: those of which the issuer alone has the key."""

MAX_TOKEN_BYTES = 16 * 1024
"""A token longer than this is refused unread."""

LEEWAY_SECONDS = 30.0
"""How far the issuer's clock and this one may be apart."""

KEEP_SECONDS = 60.0
"""How long a good token is not looked at again, so that a key taken back by the issuer counts no longer than that."""

_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_REQUIRED = ("exp", "iss", "aud")
_PARTS = 3


class JwtVerifier:
    """Verifies signed tokens of one issuer: a `TokenVerifier` of the SDK.

    Args:
        issuer: What the issuer calls itself: the tokens' ``iss``.
        audience: For whom the tokens are: their ``aud``, as a rule the URL of this server.
        jwks_url: Where the issuer's keys are; None for where its metadata says.
        algorithms: The algorithms that a token may be signed by, out of `ALGORITHMS`.
        leeway_seconds: How far the issuer's clock and this one may be apart.
        refetch_seconds: How often, at most, a token that names an unknown key has the keys fetched.

    Raises:
        DefinitionError: A URL is none, or an algorithm is one by which others than the issuer can sign.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        *,
        jwks_url: str | None = None,
        algorithms: Collection[str] = ALGORITHMS,
        leeway_seconds: float = LEEWAY_SECONDS,
        refetch_seconds: float = REFETCH_SECONDS,
    ) -> None:
        if unsafe := sorted(set(algorithms) - ALGORITHMS):
            raise DefinitionError(f"tokens are not to be signed by {unsafe!r}; choose among {sorted(ALGORITHMS)}")
        if not audience:
            raise DefinitionError("audience must be set: else tokens for any other service would let somebody in")
        self.issuer = checked_url(issuer, "an issuer")
        self.audience = audience
        warn_if_plain(issuer, "the issuer")
        if jwks_url is not None:
            warn_if_plain(jwks_url, "the keys of the issuer")
        self._algorithms = frozenset(algorithms)
        self._leeway_seconds = leeway_seconds
        self._issuer = Issuer(issuer)
        self._keys = KeySet(
            self._issuer, None if jwks_url is None else checked_url(jwks_url, "jwks_url"), refetch_seconds
        )

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """Who bears a token.

        Returns:
            The token, verified; None where it is no signed token at all.

        Raises:
            TokenExpiredError: It is none any more.
            TokenRefusedError: It is a bad one.
            IssuerUnavailableError: Nobody can tell, because the issuer cannot be asked for its keys.
        """
        if token.count(".") != _PARTS - 1:
            return None
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefusedError(f"the token is over {MAX_TOKEN_BYTES} bytes long")
        header = _header_of(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise TokenRefusedError("the token is not signed by an algorithm that is accepted here")
        if "crit" in header or str(header.get("typ", "jwt")).lower() not in _TYPES:
            raise TokenRefusedError("the token is no access token")
        key = await self._keys.find(key_id if isinstance(key_id, str) else None, algorithm)
        return self._verified(token, self._claims_of(token, key, algorithm))

    async def keep_current(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - a verdict is kept briefly anyway
        """Keep the issuer's keys until cancelled."""
        try:
            async with create_task_group() as tasks:
                tasks.start_soon(self._keys.keep_current)
        finally:
            await self._issuer.aclose()

    def _claims_of(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=audiences_of(self.audience),
                issuer=self.issuer,
                leeway=self._leeway_seconds,
                options={"require": list(_REQUIRED)},
            )
        except jwt.ExpiredSignatureError:
            raise TokenExpiredError("the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise TokenRefusedError("the token is not valid yet") from None
        except jwt.InvalidAudienceError:
            raise TokenRefusedError("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise TokenRefusedError("the token is of another issuer") from None
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefusedError(f"the token says nothing of {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise TokenRefusedError("the token's signature or content is not what it should be") from None

    def _verified(self, token: str, claims: dict[str, Any]) -> VerifiedToken:
        client, subject = bearer_in(claims)
        try:
            expires_at = math.ceil(float(claims["exp"]) + self._leeway_seconds)
        except (ValueError, OverflowError, TypeError):
            raise TokenRefusedError("the token's exp is no time") from None
        return VerifiedToken(
            token=token,
            client_id=client,
            subject=subject,
            scopes=scopes_in(claims),
            expires_at=expires_at,
            resource=self.audience,
            claims=claims,
            keep_seconds=min(KEEP_SECONDS, expires_at - time.time()),
        )

    def __repr__(self) -> str:
        return f"JwtVerifier({self.issuer!r}, {self.audience!r})"


def _header_of(token: str) -> dict[str, Any]:
    try:
        return jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefusedError("the token is malformed") from None
