"""Binding: how one renewal has its tokens bound to a key (RFC 9449, 5).

The SDK's clients know nothing of proofs. What they send is proved on its way here, what servers say of proofs is heard
as it passes, and an answer with a bound token is brought to the form that they take.

Tokens are bound where the authorization server offers it and the server takes such tokens, where the server takes no
others, and where a login was bound before: it is never renewed to tokens that whoever has them may use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from bridge.client.auth.dpop import ALGORITHM, BAD_PROOF, USE_NONCE, ProofKey, add_proof, refused_proof
from bridge.client.auth.errors import SignInError, SpentAssertionError, UnboundTokenError

if TYPE_CHECKING:
    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.dpop import Nonces
    from bridge.client.auth.login import Login

_FORM = "application/x-www-form-urlencoded"
"""The content of requests for tokens, and of no others."""
_ASSERTION = b"assertion="
"""In the content of a request with an assertion, of the client (RFC 7523, 2.2) or of somebody (2.1)."""


class _Metadata(BaseModel):
    """What a server (RFC 9728) or an authorization server (RFC 8414) says of itself, as far as it is about proofs."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    token_endpoint: str | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None


class TokenBinding:
    """Whether, and to which key, the tokens of one renewal are bound.

    Args:
        login: What is known so far. Its key stays its key; else one is made when it is needed.
        nonces: What authorization servers want to find in proofs.
        challenge: What the server asks for; None where it was not asked.
    """

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
        """The key to have tokens bound to, as far as servers have said; None for none.

        Raises:
            SignInError: They have to be bound, and to no such key.
        """
        is_understood = all(ALGORITHM in algorithms for algorithms in self._listed)
        if self._is_required and not is_understood:
            named = ", ".join(sorted({repr(name) for algorithms in self._listed for name in algorithms})) or "nothing"
            raise SignInError(
                f"its tokens have to be bound to a key (DPoP), which is to sign with {named}; here it signs with"
                f" {ALGORITHM!r} alone"
            )
        if not self._is_required and not (self._is_offered and self._is_taken and is_understood):
            return None
        if self._key is None:
            self._key = ProofKey.generated()
        return self._key

    def page(self, url: str) -> str:
        """The page at which a person is to agree, with the key that the answer is for (RFC 9449, 10)."""
        key = self.key
        return url if key is None else f"{url}&dpop_jkt={key.thumbprint}"

    def kept(self, login: Login) -> Login:
        """A login with the key that its new tokens are bound to."""
        return login.model_copy(update={"proof_key": self._key if self._has_bound else None})

    async def send(self, request: httpx2.Request, http: httpx2.AsyncClient) -> httpx2.Response:
        """Send one request of the renewal.

        Args:
            request: What is to be sent; not signed, where it is a request for tokens.
            http: Sends it.

        Returns:
            The answer, as the SDK's clients take it.

        Raises:
            SpentAssertionError: The same has to be asked with a new assertion.
            UnboundTokenError: A token that comes is not bound, and has to be.
            SignInError: The authorization server does not take the proof, or takes none.
            HTTPError: It cannot be reached.
        """
        if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != _FORM:
            response = await http.send(request, auth=None, follow_redirects=False)
            self._hear(response)
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

    def _hear(self, response: httpx2.Response) -> None:
        """Learn from metadata that passes."""
        if not response.is_success:
            return
        try:
            said = _Metadata.model_validate_json(response.content)
        except ValidationError:
            return
        algorithms = said.dpop_signing_alg_values_supported
        if algorithms is not None:
            self._listed.append(algorithms)
        if said.token_endpoint is not None:
            self._is_offered = algorithms is not None
        else:
            self._is_taken |= algorithms is not None
            self._is_required |= bool(said.dpop_bound_access_tokens_required)

    async def _proved(
        self, request: httpx2.Request, key: ProofKey, http: httpx2.AsyncClient
    ) -> tuple[httpx2.Response, str | None]:
        """Send a request for tokens with a new proof; gives the answer, and its error where it is one."""
        add_proof(request, key, self._nonces)
        response = await http.send(request, auth=None, follow_redirects=False)
        self._nonces.learn(response)
        error = None if response.is_success else object_in(response).get("error")
        return response, error if isinstance(error, str) else None

    def _read(self, response: httpx2.Response) -> httpx2.Response:
        if not response.is_success:
            return response
        said = object_in(response)
        if str(said.get("token_type")).lower() == "dpop":
            self._has_bound = True
            return httpx2.Response(response.status_code, json=said | {"token_type": "Bearer"}, request=response.request)
        if self._is_required:
            raise UnboundTokenError
        return response


def object_in(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object of an answer; an empty one where it is none."""
    try:
        said = from_json(response.content)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
