"""An authorization server in a thread of its own: registration, PKCE, signed tokens, refresh tokens for one use."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode

import anyio.to_thread
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.client.auth.proofs import thumbprint_of
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from tests.client.auth.proofs import Judge

CLIENT_SECRET = "client-secret-of-a-program"


class Authority:
    """The authorization server.

    Attributes:
        origin: Its URL, and issuer.
        expires_in: Lifetime of access tokens in seconds.
        refuses: Error of the next responses to token requests; None to answer them.
        status: HTTP status of those.
        denies: True if the user denies access.
        says: Members of its metadata that replace the usual ones; None for none.
        metadata_path: Path of its metadata.
        issues_assertions: True if it exchanges an ID token for an assertion.
        gate: Event that token requests wait for.
        grants: Requests to the token endpoint, in order.
        scopes: Scopes that the user was asked for, in order.
        registered: Clients that were registered.
        revoked: Tokens that are no longer valid.
        issued: Access tokens, in order.
        judge: Verifier of proofs, to whose keys tokens are bound (DPoP); None to bind none.
    """

    def __init__(self) -> None:
        self.origin = ""
        self.expires_in = 3600
        self.refuses: str | None = None
        self.status = 400
        self.denies = False
        self.says: dict[str, Any] = {}
        self.metadata_path = "/.well-known/oauth-authorization-server"
        self.issues_assertions = True
        self.gate = Event()
        self.gate.set()
        self.grants: list[str] = []
        self.scopes: list[str | None] = []
        self.registered: dict[str, dict[str, Any]] = {}
        self.revoked: set[str] = set()
        self.issued: list[str] = []
        self.judge: Judge | None = None
        self.client_key = ec.generate_private_key(ec.SECP256R1())
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._spent: set[str] = set()
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: dict[str, dict[str, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/{name}", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
                Route("/exchange", self._exchange, methods=["POST"]),
            ]
        )

    def claims(self, token: str, audience: str) -> dict[str, Any] | None:
        """Return the claims of a token; None if it is invalid."""
        if token in self.revoked:
            return None
        try:
            return dict(jwt.decode(token, self._key.public_key(), ["ES256"], audience=audience, issuer=self.origin))
        except jwt.InvalidTokenError:
            return None

    async def _metadata(self, request: Request) -> Response:
        if request.url.path != self.metadata_path:
            return Response(status_code=404)
        usual = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "revocation_endpoint": f"{self.origin}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "none", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse({name: value for name, value in (usual | self.says).items() if value is not None})

    async def _register(self, request: Request) -> Response:
        name: str = f"client-{len(self.registered)}"
        client = await request.json() | {"client_id": name, "token_endpoint_auth_method": "none"}
        self.registered[name] = client
        return JSONResponse(client, 201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"] in self.registered[asked["client_id"]]["redirect_uris"]
        self.scopes.append(asked.get("scope"))
        answer = {"state": asked["state"], "iss": self.origin}
        if self.denies:
            answer |= {"error": "access_denied", "error_description": "the person said no"}
        else:
            answer["code"] = secrets.token_hex()
            self._codes[answer["code"]] = asked
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        fields = dict(parse_qsl((await request.body()).decode()))
        proof = request.headers.get("dpop")
        assertion = fields.get("client_assertion")
        if assertion is not None and assertion in self._spent:
            return JSONResponse({"error": "invalid_client"}, 401)
        self._spent |= {assertion} if assertion is not None else set()
        if self.judge is not None and proof is not None:
            error = self.judge.error_in(proof, "POST", f"{self.origin}/token")
            if error is not None:
                return JSONResponse({"error": error}, 400, self.judge.headers)
            fields["dpop_jkt"] = thumbprint_of(proof)
        self.grants.append(fields["grant_type"])
        await anyio.to_thread.run_sync(self.gate.wait)
        if self.refuses is not None:
            return JSONResponse({"error": self.refuses}, self.status)
        if (error := self._error_in(fields, request.headers.get("authorization", ""))) is not None:
            return JSONResponse({"error": error}, 401 if error == "invalid_client" else 400)
        match fields["grant_type"]:
            case "authorization_code":
                asked = self._codes.pop(fields["code"])
            case "refresh_token":
                asked = self._refresh_tokens.pop(fields["refresh_token"])  # each is valid for one use
            case _:
                asked = fields
        is_of_person = asked is not fields
        headers = self.judge.headers if self.judge is not None else None
        return JSONResponse(self._issued(asked, has_refresh_token=is_of_person), headers=headers)

    def _error_in(self, fields: dict[str, str], authorization: str) -> str | None:
        match fields["grant_type"]:
            case "authorization_code":
                asked = self._codes[fields["code"]]
                digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
                assert asked["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
                assert asked["resource"] == fields["resource"]
                assert self.judge is None or asked.get("dpop_jkt") == fields.get("dpop_jkt")
            case "refresh_token":
                known = self._refresh_tokens.get(fields["refresh_token"])
                is_same = self.judge is None or (known or {}).get("dpop_jkt") == fields.get("dpop_jkt")
                return None if known is not None and is_same else "invalid_grant"
            case "client_credentials":
                return None if self._knows(fields, authorization) else "invalid_client"
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                assert fields["assertion"] == f"assertion for {self.origin} and {fields['resource']}"
                assert fields.get("client_secret") == (None if fields["client_id"] == "workload" else CLIENT_SECRET)
            case _:
                return "unsupported_grant_type"
        return None

    def _knows(self, fields: dict[str, str], authorization: str) -> bool:
        if assertion := fields.get("client_assertion"):
            claims = jwt.decode(assertion, self.client_key.public_key(), ["ES256"], audience=self.origin)
            return bool(claims["sub"] == "program")
        words = base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":")
        return [unquote(word) for word in words] == ["program", CLIENT_SECRET]

    def _issued(self, asked: dict[str, str], *, has_refresh_token: bool) -> dict[str, Any]:
        scope = asked.get("scope", "")
        claims = {
            "iss": self.origin,
            "aud": asked["resource"],
            "scope": scope,
            "exp": int(time.time()) + self.expires_in,
            "jti": secrets.token_hex(),
        }
        thumbprint = asked.get("dpop_jkt") if self.judge is not None else None
        token = jwt.encode(claims | ({"cnf": {"jkt": thumbprint}} if thumbprint else {}), self._key, "ES256")
        self.issued.append(token)
        answer: dict[str, Any] = {
            "access_token": token,
            "token_type": "DPoP" if thumbprint else "Bearer",
            "expires_in": self.expires_in,
            "scope": scope,
        }
        if has_refresh_token:
            answer["refresh_token"] = secrets.token_hex()
            self._refresh_tokens[answer["refresh_token"]] = asked
        return answer

    async def _exchange(self, request: Request) -> Response:
        """Exchange tokens as an identity provider (RFC 8693)."""
        fields = dict(parse_qsl((await request.body()).decode()))
        if fields["subject_token"] != "id token":
            return JSONResponse({"error": "invalid_grant"}, 400)
        assertion = f"assertion for {fields['audience']} and {fields['resource']}"
        kind = fields["requested_token_type"] if self.issues_assertions else fields["subject_token_type"]
        return JSONResponse({"access_token": assertion, "issued_token_type": kind, "token_type": "N_A"})

    async def _revoke(self, request: Request) -> Response:
        token = dict(parse_qsl((await request.body()).decode()))["token"]
        self.revoked.add(token)
        self._refresh_tokens.pop(token, None)
        return Response(status_code=200)


@contextmanager
def running() -> Iterator[Authority]:
    """Run an authorization server in this block."""
    authority = Authority()
    with http_server.serving(authority.app) as origin:
        authority.origin = origin
        yield authority
