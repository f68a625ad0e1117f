"""A gateway between the client and a server of the official conformance suite, whose caller has an own credential."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx

from bridge import ClientHandlers, HttpTransport, McpToolProvider, ServerConfig
from bridge.tools import Elicitation, ElicitationAnswer, InvocationContext, UrlElicitation
from tests.gateway.credentials.connected import ADA, Visitor
from tests.processes import serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    Fill = Callable[[Elicitation | UrlElicitation, InvocationContext], Awaitable[ElicitationAnswer]]

DEADLINE_SECONDS = 110
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
LOGIN = {"type": "login", "per": "caller"}
PROGRAM = {"type": "client_credentials"}
"""The credential of the gateway itself."""
KEYS = {
    "issuer": "issuer",
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "private_key_pem": "privateKey",
    "signing_algorithm": "signingAlgorithm",
}
"""Keys of ``mcp.json`` by those of the suite."""


def entry(url: str, scenario: str, context: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the configuration of a server of the suite."""
    if scenario.startswith("auth/"):
        grant = PROGRAM if scenario.startswith("auth/client-credentials") else LOGIN
        settings["auth"] = grant | {KEYS[key]: value for key, value in context.items() if key in KEYS}
        if grant is LOGIN and "client_id" not in context:
            settings["auth"]["clientMetadataUrl"] = CLIENT_METADATA_URL
    return {"url": url, **settings}


@contextmanager
def gateway(server: Mapping[str, Any]) -> Iterator[str]:
    """Run ``bridge serve`` in front of a server; yields its origin."""
    with TemporaryDirectory() as folder:
        config, keys = Path(folder, "mcp.json"), Path(folder, "keys")
        config.write_text(json.dumps({"mcpServers": {"suite": server}}), encoding="utf-8")
        keys.write_text(f"ada {ADA}\n", encoding="utf-8")
        keys.chmod(0o600)
        store = ("--credential-store", str(Path(folder, "credentials.db")))
        options = ("--transport", "http", "--port", "0", "--api-keys", str(keys), *store)
        with serving("-m", "bridge", "serve", str(config), *options) as process:
            yield process.origin


async def connected(origin: str, protocol: Any) -> ServerConfig:
    """Return the gateway, once its caller has connected the server behind it."""
    transport = HttpTransport(f"{origin}/mcp", headers={"Authorization": f"Bearer {ADA}"})
    server = ServerConfig(
        name="gateway", transport=transport, protocol=protocol, required=True, timeout_seconds=DEADLINE_SECONDS
    )
    handlers = ClientHandlers(elicitation=partial(open_link, origin, None))
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
        await anyio.to_thread.run_sync(log_in, origin, question.url)
        return ElicitationAnswer("accept")
    assert fill_in is not None
    return await fill_in(question, context)


def log_in(origin: str, link: str) -> None:
    """Open a link of the gateway in a browser, and agree to everything."""
    browser = Visitor(origin)
    with browser.client:
        browser.open(link)
        if browser.forms()[0]["action"].endswith("/sign-in"):
            browser.sign_in()
        browser.send(browser.page.url.path)
        back = httpx.get(browser.leads_to).headers["location"]
        browser.open(back)
