"""Decides if the tokens of a renewal are bound to a key (RFC 9449 section 5), and adds the proofs.

The SDK's clients do not support DPoP. Their requests get proofs here, metadata is read as it passes, and responses with
bound tokens are converted to the form that the clients accept.

Tokens are bound if both servers support it, if the MCP server requires it, or if the login was bound before: a bound
login is never renewed to bearer tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from bridge.client.auth.dpop import ALGORITHM, BAD_PROOF, USE_NONCE, ProofKey, add_proof, refused_proof
from bridge.client.auth.errors import SignInError, SpentAssertionError, UnboundTokenError
from bridge.client.transports.received_data import media_type

if TYPE_CHECKING:
    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.dpop import Nonces
    from bridge.client.auth.login import Login

_FORM = "application/x-www-form-urlencoded"
"""Content type of token requests only."""
_ASSERTION = b"assertion="
"""Part of the content of requests with an assertion (RFC 7523 sections 2.1 and 2.2)."""


class _Metadata(BaseModel):
    """DPoP fields of a server's (RFC 9728) or authorization server's (RFC 8414) metadata."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    token_endpoint: str | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None


class TokenBinding:
    """Token binding of one renewal; a refresh has no challenge. A login keeps its key; else one is made when needed."""

    def __init__(self, login: Login, nonces: Nonces, challenge: Challenge | None = None) -> None:
        self._key = login.proof_key
        self._nonces = nonces
        self._is_offered = False
        self._is_taken = challenge is not None and challenge.takes_proofs
        self._is_required = login.proof_key is not None
        self._listed: list[list[str]] = []
        self._has_bound = False

    @property
    def key(self) -> ProofKey | None:
        """The key to bind tokens to, according to the metadata so far; None for bearer tokens.

        Raises:
            SignInError: Binding is required with an algorithm that is not supported.
        """
        is_understood = all(ALGORITHM in algorithms for algorithms in self._listed)
        if self._is_required and not is_understood:
            named = ", ".join(sorted({repr(name) for algorithms in self._listed for name in algorithms})) or "nothing"
            raise SignInError(
                f"its tokens must be bound to a key (DPoP) with the algorithms {named}; only {ALGORITHM!r} is supported"
            )
        if not self._is_required and not (self._is_offered and self._is_taken and is_understood):
            return None
        if self._key is None:
            self._key = ProofKey.generated()
        return self._key

    def page(self, url: str) -> str:
        """Add the key's thumbprint to the login page's URL (RFC 9449 section 10)."""
        key = self.key
        return url if key is None else f"{url}&dpop_jkt={key.thumbprint}"

    def kept(self, login: Login) -> Login:
        """Copy a login with the key that its new tokens are bound to."""
        return login.model_copy(update={"proof_key": self._key if self._has_bound else None})

    async def send(self, request: httpx2.Request, http: httpx2.AsyncClient) -> httpx2.Response:
        """Send one request of the renewal; a token request gets its proof here.

        Returns:
            The response in the form that the SDK's clients accept.

        Raises:
            SpentAssertionError: The request must be repeated with a new assertion.
            UnboundTokenError: The issued token is not bound but must be.
            SignInError: The authorization server refuses the proof, or supports none.
            HTTPError: The authorization server cannot be reached.
        """
        if media_type(request.headers.get("Content-Type", "")) != _FORM:
            response = await http.send(request, auth=None, follow_redirects=False)
            self._read_metadata(response)
            return response
        key = self.key
        if key is None:
            return await http.send(request, auth=None, follow_redirects=False)
        response, error = await self._proved(request, key, http)
        if error == USE_NONCE and self._nonces.at(request.url) is not None:
            if _ASSERTION in request.content:
                raise SpentAssertionError
            response, error = await self._proved(request, key, http)
        if error in {USE_NONCE, BAD_PROOF}:
            raise refused_proof("its authorization server", error)
        return self._read(response)

    def _read_metadata(self, response: httpx2.Response) -> None:
        """Update the state from metadata."""
        if not response.is_success:
            return
        try:
            metadata = _Metadata.model_validate_json(response.content)
        except ValidationError:
            return
        algorithms = metadata.dpop_signing_alg_values_supported
        if algorithms is not None:
            self._listed.append(algorithms)
        if metadata.token_endpoint is not None:
            self._is_offered = algorithms is not None
        else:
            self._is_taken |= algorithms is not None
            self._is_required |= bool(metadata.dpop_bound_access_tokens_required)

    async def _proved(
        self, request: httpx2.Request, key: ProofKey, http: httpx2.AsyncClient
    ) -> tuple[httpx2.Response, str | None]:
        """Send a token request with a new proof; returns the response and its error code, if any."""
        add_proof(request, key, self._nonces)
        response = await http.send(request, auth=None, follow_redirects=False)
        self._nonces.learn(response)
        error = None if response.is_success else object_in(response).get("error")
        return response, error if isinstance(error, str) else None

    def _read(self, response: httpx2.Response) -> httpx2.Response:
        if not response.is_success:
            return response
        body = object_in(response)
        if str(body.get("token_type")).lower() == "dpop":
            self._has_bound = True
            return httpx2.Response(response.status_code, json=body | {"token_type": "Bearer"}, request=response.request)
        if self._is_required:
            raise UnboundTokenError
        return response


def object_in(response: httpx2.Response) -> dict[str, Any]:
    """Parse the JSON object of a response; empty if it is not an object."""
    try:
        body = from_json(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
