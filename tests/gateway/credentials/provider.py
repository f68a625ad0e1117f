"""An identity provider of a gateway's callers: a login page, at which one person logs in, and signed tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

CLIENT_ID = "gateway"


class IdentityProvider:
    """The provider.

    Attributes:
        origin: Its URL, and issuer.
        person: Subject of whoever logs in.
        says: Members of its metadata that replace the usual ones.
        responds: Parameters of its redirects that replace the usual ones; None leaves one out.
        asked: Parameters of the requests to its login page.
        spent: Form fields of the requests to its token endpoint.
    """

    def __init__(self) -> None:
        self.origin = ""
        self.person = "ada"
        self.says: dict[str, Any] = {}
        self.responds: dict[str, str | None] = {}
        self.asked: list[dict[str, str]] = []
        self.spent: list[dict[str, str]] = []
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, dict[str, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/keys", self._keys),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def token(self, subject: str, audience: str) -> str:
        """Return an access token."""
        claims = {"iss": self.origin, "aud": audience, "sub": subject, "client_id": "program", "exp": time.time() + 600}
        return jwt.encode(claims, self._key, "ES256", headers={"kid": "one"})

    async def _metadata(self, _: Request) -> Response:
        usual = {
            "issuer": self.origin,
            "jwks_uri": f"{self.origin}/keys",
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse(usual | self.says)

    async def _keys(self, _: Request) -> Response:
        key = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        return JSONResponse({"keys": [key | {"kid": "one", "use": "sig", "alg": "ES256"}]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.asked.append(asked)
        code = secrets.token_hex()
        self._codes[code] = asked | {"person": self.person}
        answer = {"state": asked["state"], "iss": self.origin, "code": code} | self.responds
        given = {name: value for name, value in answer.items() if value is not None}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(given)}", 302)

    async def _token(self, request: Request) -> Response:
        fields = dict(parse_qsl((await request.body()).decode()))
        self.spent.append(fields | {"authorization": request.headers.get("authorization", "")})
        asked = self._codes.pop(fields["code"], {})
        digest = base64.urlsafe_b64encode(hashlib.sha256(fields["code_verifier"].encode()).digest())
        is_right = asked.get("code_challenge") == digest.decode().rstrip("=")
        if (
            not is_right
            or asked["redirect_uri"] != fields["redirect_uri"]
            or asked["client_id"] != fields.get("client_id", CLIENT_ID)
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = self.token(asked["person"], fields["resource"])
        return JSONResponse({"access_token": token, "token_type": "Bearer"})


@contextmanager
def running() -> Iterator[IdentityProvider]:
    """Run a provider in this block."""
    provider = IdentityProvider()
    with http_server.serving(provider.app) as origin:
        provider.origin = origin
        yield provider
