"""Signature: what a request to a server is signed with: a token, and a proof of having the key that it is bound to.

A token that is bound goes with a proof that was made for its request, and never without one (RFC 9449, 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.auth.challenge import challenge_in
from bridge.client.auth.dpop import USE_NONCE, Nonces, prove, refused_proof

if TYPE_CHECKING:
    import httpx2

    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.login import Login


class Signature:
    """Signs the requests to one server; it remembers what the server wants to find in proofs."""

    def __init__(self) -> None:
        self._nonces = Nonces()

    def put(self, request: httpx2.Request, login: Login | None) -> httpx2.Request:
        """Sign a request, which is then sent once; one that was sent before gets a new proof.

        Args:
            request: The request.
            login: What to sign with; None for nothing.
        """
        token = login.access_token if login is not None else None
        if login is None or token is None:
            return request
        if login.proof_key is None:
            request.headers["Authorization"] = f"Bearer {token}"
            request.headers.pop("DPoP", None)  # of a token that it was sent with before
        else:
            prove(request, login.proof_key, self._nonces, token)
        return request

    def wants_nonce(self, response: httpx2.Response, used: Login | None) -> bool:
        """Whether an answer asks for the request again, with a nonce in the proof that it gives (RFC 9449, 9).

        Args:
            response: The answer.
            used: What the request was signed with.
        """
        if used is None or used.proof_key is None or not self._nonces.learn(response):
            return False
        challenge = challenge_in(response)
        return challenge is not None and challenge.proof_error == USE_NONCE

    def challenge_in(self, response: httpx2.Response, used: Login | None) -> Challenge | None:
        """What an answer asks for that another token could give; None where there is no such thing.

        Args:
            response: The answer.
            used: What the request was signed with.

        Raises:
            SignInError: The server does not take the proof.
        """
        challenge = challenge_in(response)
        if used is None or used.proof_key is None:
            return challenge
        self._nonces.learn(response)
        if challenge is not None and challenge.proof_error is not None:
            raise refused_proof("it", challenge.proof_error)
        return challenge
