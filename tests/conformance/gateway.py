"""A gateway between the client and a server of the official conformance suite, whose caller has an own credential."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx
import jwt

from bridge import ClientHandlers, HttpTransport, McpToolProvider, ServerConfig
from bridge.tools import Elicitation, ElicitationAnswer, InvocationContext, UrlElicitation
from tests.gateway.credentials.connected import ADA, Visitor
from tests.processes import serving
from tests.server.auth.issuer import AUDIENCE, CLIENT, issuing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    Fill = Callable[[Elicitation | UrlElicitation, InvocationContext], Awaitable[ElicitationAnswer]]

DEADLINE_SECONDS = 110
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
GRANTS: Mapping[str, Mapping[str, Any]] = {
    "auth/client-credentials-basic": {"type": "client_credentials"},
    "auth/client-credentials-jwt": {"type": "client_credentials"},
    "auth/wif-jwt-bearer": {"type": "workload_identity", "assertionFile": "assertion"},
    "auth/enterprise-managed-authorization": {
        "type": "identity_assertion",
        "per": "caller",
        "subjectTokenType": "id_token",
    },
}
"""Authentication at the server, by scenario: of the gateway itself, or of its caller."""
LOGIN = {"type": "login", "per": "caller"}
"""Authentication in the other scenarios with authorization."""
KEYS = {
    "issuer": "issuer",
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "private_key_pem": "privateKey",
    "signing_algorithm": "signingAlgorithm",
    "idp_client_id": "idpClientId",
    "idp_token_endpoint": "idpTokenUrl",
}
"""Keys of ``mcp.json`` by those of the suite."""


@dataclass(frozen=True)
class Served:
    """A running gateway."""

    origin: str
    token: str
    """The caller's credential at the gateway."""


def entry(url: str, scenario: str, context: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the configuration of a server of the suite."""
    if scenario.startswith("auth/"):
        grant = GRANTS.get(scenario, LOGIN)
        settings["auth"] = {**grant, **{KEYS[key]: value for key, value in context.items() if key in KEYS}}
        if grant is LOGIN and "client_id" not in context:
            settings["auth"]["clientMetadataUrl"] = CLIENT_METADATA_URL
    return {"url": url, **settings}


@contextmanager
def gateway(server: Mapping[str, Any], context: Mapping[str, Any]) -> Iterator[Served]:
    """Run ``bridge serve`` in front of a server.

    Its caller has a key, or the ID token of the suite's identity provider. That publishes no keys, so the gateway asks
    another issuer about tokens.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        config, token = folder / "mcp.json", context.get("idp_id_token", ADA)
        config.write_text(json.dumps({"mcpServers": {"suite": server}}), encoding="utf-8")
        (folder / "assertion").write_text(context.get("valid_jwt", ""), encoding="ascii")
        if token is ADA:
            keys = folder / "keys"
            keys.write_text(f"ada {ADA}\n", encoding="utf-8")
            keys.chmod(0o600)
            identity: tuple[str, ...] = ("--api-keys", str(keys))
        else:
            idp = stack.enter_context(issuing())
            claims = jwt.decode(token, options={"verify_signature": False})
            idp.active[token] = claims | {"active": True, "aud": AUDIENCE, "client_id": context["idp_client_id"]}
            client = ("--oauth-client-id", CLIENT[0], "--oauth-client-secret", CLIENT[1])
            introspection = ("--oauth-introspection-url", f"{idp.url}/introspect", *client)
            identity = ("--oauth-issuer", claims["iss"], "--resource-url", AUDIENCE, *introspection)
        store = ("--credential-store", str(folder / "credentials.db"))
        options = ("--transport", "http", "--port", "0", *identity, *store)
        process = stack.enter_context(serving("-m", "bridge", "serve", str(config), *options))
        yield Served(process.origin, token)


async def connected(gateway: Served, protocol: Any) -> ServerConfig:
    """Return the gateway, once its caller has connected the server behind it."""
    transport = HttpTransport(f"{gateway.origin}/mcp", headers={"Authorization": f"Bearer {gateway.token}"})
    server = ServerConfig(
        name="gateway", transport=transport, protocol=protocol, required=True, timeout_seconds=DEADLINE_SECONDS
    )
    handlers = ClientHandlers(elicitation=partial(open_link, gateway.origin, None))
    async with McpToolProvider([server], handlers=handlers) as provider:
        for tool in provider.tools:
            if tool.name == "suite_connect":
                await provider.call(tool.name, {})
    return server


async def open_link(
    origin: str, fill_in: Fill | None, question: Elicitation | UrlElicitation, context: InvocationContext
) -> ElicitationAnswer:
    """Log in as the person who got a link of the gateway, or fill in a form."""
    if isinstance(question, UrlElicitation):
        is_connected = await anyio.to_thread.run_sync(log_in, origin, question.url)
        return ElicitationAnswer("accept" if is_connected else "decline")
    assert fill_in is not None
    return await fill_in(question, context)


def log_in(origin: str, link: str) -> bool:
    """Open a link of the gateway in a browser, and agree to everything; return True if the server is connected then."""
    browser = Visitor(origin)
    with browser.client:
        browser.open(link)
        if browser.forms()[0]["action"].endswith("/sign-in"):
            browser.sign_in()
        if browser.send(browser.page.url.path).is_error:
            return False
        return not browser.open(httpx.get(browser.leads_to).headers["location"]).is_error
