"""The public keys of an issuer (RFC 7517): fetched before they are needed, and again when an unknown one is named."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
from jwt import PyJWK, PyJWTError

from bridge.server.auth.refusals import IssuerUnavailableError, TokenRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.auth.issuer import Issuer

_logger = logging.getLogger("bridge.server.auth")

REFRESH_SECONDS = 600.0
"""How old the keys become while the issuer answers."""

REFETCH_SECONDS = 30.0
"""How often, at most, a token that names an unknown key has them fetched."""

RETRY_SECONDS = 5.0
"""How often they are asked for while there are none."""

_FETCH_SECONDS = 10.0

_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of key (``kty``) behind an algorithm's first two letters."""


class KeySet:
    """The keys of one issuer.

    Args:
        issuer: Who is asked.
        url: Where the keys are; None for where the issuer's metadata says.
        refetch_seconds: How often, at most, the issuer is asked.
    """

    def __init__(self, issuer: Issuer, url: str | None, refetch_seconds: float = REFETCH_SECONDS) -> None:
        self._issuer = issuer
        self._url = url
        self._refetch_seconds = refetch_seconds
        self._keys: tuple[Mapping[str, Any], ...] | None = None
        self._made: dict[tuple[int, str], PyJWK] = {}
        self._lock = anyio.Lock()
        self._asked_at: float | None = None
        self._failure: IssuerUnavailableError | None = None

    async def find(self, key_id: str | None, algorithm: str) -> PyJWK:
        """The key that a token names.

        Args:
            key_id: The token's ``kid``; without one, the issuer's only key for the algorithm is meant.
            algorithm: The token's ``alg``.

        Raises:
            TokenRefusedError: The issuer has no such key.
            IssuerUnavailableError: The issuer cannot be asked for it.
        """
        found = self._found(key_id, algorithm)
        if found is None:
            await self._ask_again(self._keys)
            found = self._found(key_id, algorithm)
        if found is not None:
            return found
        if self._keys is None or self._failure is not None:
            raise self._failure or IssuerUnavailableError(f"the keys of {self._issuer.url} have not been fetched")
        raise TokenRefusedError("the token is signed by a key that its issuer does not have")

    async def refresh(self) -> None:
        """Fetch the keys. Where that fails, the ones from before stay.

        Raises:
            IssuerUnavailableError: They cannot be fetched.
        """
        try:
            with anyio.fail_after(_FETCH_SECONDS):
                keys = await self._fetched()
        except IssuerUnavailableError as error:
            self._failure = error
            raise
        except TimeoutError as error:
            self._failure = IssuerUnavailableError(f"{self._issuer.url} takes too long to answer")
            raise self._failure from error
        except Exception as error:
            self._failure = IssuerUnavailableError(f"what {self._issuer.url} answers cannot be read: {error!r}")
            raise self._failure from error
        self._failure = None
        self._keys, self._made = keys, {}

    async def keep_current(self) -> None:
        """Fetch the keys now and then, until cancelled."""
        while True:
            seconds = REFRESH_SECONDS
            async with self._lock:
                try:
                    await self.refresh()
                except IssuerUnavailableError as error:
                    seconds = self._pause_seconds
                    state = "no token can be verified" if self._keys is None else "the ones from before stay in use"
                    _logger.error("the keys of %s were not fetched: %s; %s", self._issuer.url, error, state)  # noqa: TRY400 - it says it all
            await anyio.sleep(seconds)

    async def _ask_again(self, insufficient: tuple[Mapping[str, Any], ...] | None) -> None:
        """Fetch the keys, once for all who wait, unless that was done a moment ago."""
        async with self._lock:
            now = monotonic()
            if self._keys is not insufficient:
                return
            if self._asked_at is not None and now - self._asked_at < self._pause_seconds:
                return
            self._asked_at = now
            try:
                await self.refresh()
            except IssuerUnavailableError as error:
                _logger.error("the keys of %s were not fetched: %s", self._issuer.url, error)  # noqa: TRY400 - as above

    @property
    def _pause_seconds(self) -> float:
        return min(RETRY_SECONDS, self._refetch_seconds) if self._keys is None else self._refetch_seconds

    async def _fetched(self) -> tuple[Mapping[str, Any], ...]:
        url = self._url
        if url is None:
            found = (await self._issuer.metadata()).get("jwks_uri")
            if not isinstance(found, str):
                raise IssuerUnavailableError(f"the metadata of {self._issuer.url} names no jwks_uri")
            if found.startswith("http:") and self._issuer.url.startswith("https:"):
                raise IssuerUnavailableError(
                    f"the metadata of {self._issuer.url} names a jwks_uri without encryption, {found[:200]!r}: "
                    "keys from there would let anybody in who sits in between"
                )
            url = found
        keys = (await self._issuer.get(url)).get("keys")
        if not isinstance(keys, list):
            raise IssuerUnavailableError(f"{url} did not answer with a set of keys")
        return tuple(key for key in keys if isinstance(key, dict))

    def _found(self, key_id: str | None, algorithm: str) -> PyJWK | None:
        fit = [
            (position, key)
            for position, key in enumerate(self._keys or ())
            if (key_id is None or key.get("kid") == key_id) and _signs(key, algorithm)
        ]
        # Which of several keys is meant, a token says; where it does not, nobody guesses.
        if not fit or (key_id is None and len(fit) > 1):
            return None
        position, key = fit[0]
        made = self._made.get((position, algorithm))
        if made is None:
            try:
                made = PyJWK(dict(key), algorithm)
                weakness = made.Algorithm.check_key_length(made.key)
            except (PyJWTError, ValueError, TypeError) as error:
                raise TokenRefusedError("the token is signed by a key that its issuer describes wrongly") from error
            if weakness is not None:  # RFC 7518, 3.3 and 3.5: whoever factors the key signs tokens
                raise TokenRefusedError(f"the token is signed by a key that is too short: {weakness}")
            self._made[position, algorithm] = made
        return made


def _signs(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key is for signatures of an algorithm; a secret one among public ones never is."""
    return (
        key.get("kty") == _FAMILIES.get(algorithm[:2])
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and "verify" in key.get("key_ops", ["verify"])
    )
