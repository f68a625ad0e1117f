"""A server that says whom it sees, behind a gateway whose callers have credentials of their own."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from bridge import Caller, InvocationContext, ToolBox, tool
from bridge.server.http.app import http_app
from bridge.server.server import Server
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from bridge.gateway import Gateway

_METADATA = "/.well-known/oauth-protected-resource/mcp"
ADA = Caller("ada", issuer="key", subject="ada")
BOB = Caller("bob", issuer="key", subject="bob")


@tool
async def whoami(context: InvocationContext, nonce: int = 0) -> str:
    """Return the credential of the caller."""
    return f"{context.headers.get('authorization')} {nonce}"


@dataclass
class Seeing:
    """The server.

    Attributes:
        url: Its URL.
        accepted: Values of Authorization that may call tools; None for all.
        needs_credentials: True if also listing needs one of them.
        scope: Scope that a challenge asks for; None for a challenge by 401.
        authority: URL of the authorization server that its metadata names; None for no metadata.
        requests: Headers of the requests.
    """

    url: str = ""
    accepted: set[str] | None = None
    needs_credentials: bool = False
    scope: str | None = None
    authority: str | None = None
    requests: list[dict[str, str]] = field(default_factory=list)

    def refuses(self, headers: dict[str, str], method: str) -> bool:
        """Return True if a request needs another credential."""
        if self.accepted is None or headers.get("authorization") in self.accepted:
            return False
        return self.needs_credentials or method == "tools/call"


@contextmanager
def seeing(**options: Any) -> Iterator[Seeing]:
    """Serve it in this block."""
    server, app = Seeing(), http_app(Server(ToolBox(whoami), name="notes"), **options)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"] == _METADATA and server.authority is not None:
            metadata = {"resource": server.url, "authorization_servers": [server.authority]}
            await JSONResponse(metadata)(scope, receive, send)
            return
        message = await receive()
        body: bytes = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        method = json.loads(body).get("method", "") if body else ""
        server.requests.append({"method": method, **headers})
        if server.refuses(headers, method):
            asked = {"realm": "notes"}
            if server.scope is not None:
                asked |= {"error": "insufficient_scope", "scope": server.scope}
            if server.authority is not None:
                asked["resource_metadata"] = server.url.replace("/mcp", _METADATA)
            challenge = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in asked.items())
            status = 401 if server.scope is None else 403
            await Response(status_code=status, headers={"www-authenticate": challenge})(scope, receive, send)
            return
        sent = False

        async def again() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await app(scope, again, send)

    outer = Starlette(routes=[Mount("/", app=guarded)], lifespan=app.router.lifespan_context)
    outer.state = app.state
    with serving(outer) as origin:
        server.url = f"{origin}/mcp"
        yield server


def context_of(caller: Caller | None, token: str | None = None) -> InvocationContext:
    """Return the context of a call of a caller, with its token at the gateway."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return InvocationContext(caller=caller, headers=headers)


async def seen(gateway: Gateway, caller: Caller | None, nonce: int = 0, *, token: str | None = None) -> str:
    """Call the server for a caller; return whom it sees, or the error."""
    result = await gateway.tools.call("whoami", {"nonce": nonce}, context=context_of(caller, token))
    return result.text
