"""A server of bridge over HTTP, with the tokens of an authorization server."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount

from bridge import ToolBox, tool
from bridge.server.http.app import http_app
from bridge.server.http.requests import read_body, replay_body
from bridge.server.server import Server
from tests.client.auth.proofs import thumbprint_of
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message, Receive, Scope, Send

    from tests.client.auth.authority import Authority
    from tests.client.auth.proofs import Judge

METADATA_PATH = "/.well-known/oauth-protected-resource"
MAX_BODY_BYTES = 1024 * 1024


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def erase() -> str:
    """A tool for callers who may write."""
    return "erased"


class Resource:
    """The server.

    Attributes:
        authority: The authorization server that it trusts.
        url: URL of streamable HTTP.
        sse_url: URL of SSE.
        refusals: Responses that asked for another token.
        tokens: Tokens of the requests.
        is_held: Set when ``hold`` has been called.
        requests: Headers of the accepted requests, with ``:method``.
        judge: Verifier of proofs of tokens that are bound (DPoP); None if such tokens are not accepted.
        says: Members that its metadata has beside the usual ones.
    """

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.url = ""
        self.sse_url = ""
        self.refusals: list[int] = []
        self.tokens: list[str] = []
        self.requests: list[dict[str, str]] = []
        self.judge: Judge | None = None
        self.says: dict[str, Any] = {}
        self.is_held = Event()
        held = self.is_held

        @tool
        async def hold() -> None:
            """Run until cancelled."""
            held.set()
            await anyio.sleep_forever()

        self.app = http_app(Server(ToolBox([add, erase, hold]), name="guarded"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(METADATA_PATH):
            about = scope["path"].removeprefix(METADATA_PATH)
            usual = {"resource": self._own(about), "authorization_servers": [self.authority.origin]}
            answer: Any = JSONResponse(usual | self.says)
        elif scope["type"] == "http":
            body = await read_body(receive, MAX_BODY_BYTES) if scope["method"] == "POST" else b""
            receive = replay_body(body, receive)
            answer = self._refusal(scope, body) or self.app
        else:
            answer = self.app
        await answer(scope, receive, self._with_nonce(send) if self.judge is not None else send)

    def _with_nonce(self, send: Send) -> Send:
        async def send_with_nonce(message: Message) -> None:
            if message["type"] == "http.response.start" and self.judge is not None:
                said = [(name.lower().encode(), value.encode()) for name, value in self.judge.headers.items()]
                message["headers"] = [*message.get("headers", ()), *said]
            await send(message)

        return send_with_nonce

    def _own(self, path: str) -> str:
        return self.url.removesuffix("/mcp") + path

    def _refusal(self, scope: Scope, body: bytes) -> JSONResponse | None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        scheme, _, token = headers.get("authorization", "").partition(" ")
        self.tokens.append(token)
        path = "/sse" if scope["path"].startswith(("/sse", "/messages")) else scope["path"]
        described = f'resource_metadata="{self._own(METADATA_PATH)}{path}"'
        claims = self.authority.claims(token, self._own(path))
        if claims is None or scheme != ("DPoP" if "cnf" in claims else "Bearer"):
            return self._refused(401, f'error="invalid_token", scope="read", {described}')
        if "cnf" in claims and (error := self._error_of_proof(headers, scope, claims, token)) is not None:
            return self._refused(401, f'error="{error}", {described}')
        if b'"name":"erase"' in body and "write" not in claims["scope"].split():
            return self._refused(403, f'error="insufficient_scope", scope="write", {described}')
        self.requests.append(headers | {":method": scope["method"]})
        return None

    def _error_of_proof(self, headers: dict[str, str], scope: Scope, claims: dict[str, Any], token: str) -> str | None:
        if self.judge is None:
            return "invalid_token"
        proof = headers.get("dpop")
        error = self.judge.error_in(proof, scope["method"], self._own(scope["path"]), token)
        if error is None and thumbprint_of(proof or "") != claims["cnf"]["jkt"]:
            return "invalid_token"
        return error

    def _refused(self, status: int, challenge: str) -> JSONResponse:
        self.refusals.append(status)
        scheme = "DPoP" if self.judge is not None else "Bearer"
        return JSONResponse({"error": "refused"}, status, {"WWW-Authenticate": f"{scheme} {challenge}"})


@contextmanager
def running(authority: Authority) -> Iterator[Resource]:
    """Run the server in this block."""
    resource = Resource(authority)
    app = Starlette(routes=[Mount("/", app=resource)], lifespan=resource.app.router.lifespan_context)
    app.state = resource.app.state
    with http_server.serving(app) as origin:
        resource.url, resource.sse_url = f"{origin}/mcp", f"{origin}/sse"
        yield resource
