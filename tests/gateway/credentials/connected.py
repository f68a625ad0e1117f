"""A gateway over HTTP whose callers have credentials of their own, as a program and as a browser reach it."""

from __future__ import annotations

import html
import re
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import httpx

from bridge.client.auth.errors import SignInError
from bridge.gateway.credentials.broker import CredentialBroker
from bridge.gateway.credentials.connecting import Connecting
from bridge.gateway.credentials.errors import CredentialNeededError
from bridge.gateway.credentials.grants import GrantDescription
from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import Credential, CredentialKey
from bridge.server import Server
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.features import Features
from bridge.server.http.app import http_app
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from bridge.gateway.credentials.identification import SignInClient
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest

ADA, BOB = "key-of-ada-with-enough-characters", "key-of-bob-with-enough-characters"
URL_ELICITATION: dict[str, Any] = {"elicitation": {"url": {}}}


@dataclass
class KeyGrant:
    """A grant of the kind ``secret``."""

    server: str = "notes"
    kind: Any = "secret"

    def describe(self) -> GrantDescription:
        return GrantDescription(server=self.server, kind="secret", address="https://notes.example.com", header="X-Key")

    async def accept_secret(self, key: CredentialKey, text: str) -> Credential:
        if not text.isascii() or not text:
            raise SignInError("a key is visible ASCII")
        return Credential(kind="secret", secret=text)


@dataclass
class PageGrant:
    """A grant of the kind ``login``, whose authorization server sends every browser back at once."""

    origin: str = "https://login.example.com"
    server: str = "drive"
    kind: Any = "login"
    started: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None

    def describe(self) -> GrantDescription:
        return GrantDescription(
            server=self.server, kind="login", address="https://drive.example.com", issuer=self.origin, scopes=("read",)
        )

    async def start(self, key: CredentialKey, redirect_uri: str, state: str, *, scope: str | None = None) -> str:
        if self.problem is not None:
            raise SignInError(self.problem)
        self.started.append({"key": key, "redirect_uri": redirect_uri, "state": state, "scope": scope})
        return f"{self.origin}/authorize?{urlencode({'redirect_uri': redirect_uri, 'state': state})}"

    async def finish(self, key: CredentialKey, parameters: Mapping[str, str]) -> Credential:
        (started,) = [each for each in self.started if each["state"] == parameters["state"]]
        if started["key"] != key or parameters.get("iss") != self.origin:
            raise SignInError("its response is not from the expected authorization server (iss)")
        if "code" not in parameters:
            raise SignInError(f"the login was refused ({parameters['error']})")
        return Credential(kind="login", secret=f"token for {parameters['code']}")


class Upstream:
    """Executor of a server's tool that shows the caller's credential."""

    def __init__(self, broker: CredentialBroker, server: str) -> None:
        self._broker = broker
        self._server = server
        self.refused: set[str] = set()
        self.calls = 0

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        assert context.caller is not None
        key = CredentialKey.of(context.caller, self._server)
        credential = await self._broker.store.get(key)
        if credential is None or credential.value in self.refused:
            kind = self._broker.grants[self._server].kind
            raise CredentialNeededError(self._server, kind, key, refused=credential is not None)
        self.calls += 1
        return ToolExecutionResult.of_text(f"{context.caller.subject} has {credential.value}")


@dataclass
class Reached:
    """A gateway, as programs and browsers of its callers reach it."""

    origin: str
    visitors: list[Visitor] = field(default_factory=list, kw_only=True)

    def program(self, key: str = ADA) -> httpx.Client:
        """Return a program of a caller."""
        return httpx.Client(base_url=self.origin, headers={"authorization": f"Bearer {key}"}, timeout=20)

    def visitor(self) -> Visitor:
        """Return a browser without cookies."""
        self.visitors.append(Visitor(self.origin))
        return self.visitors[-1]

    def close(self) -> None:
        """Close the browsers."""
        for visitor in self.visitors:
            visitor.client.close()


@dataclass
class Connected(Reached):
    """A gateway in this process, with servers that are test doubles."""

    drive: PageGrant
    upstreams: dict[str, Upstream]
    connecting: Connecting
    store: SqliteCredentialStore

    async def forget_all(self) -> None:
        """Forget what callers have connected, and how servers behave."""
        for record in await self.store.list():
            await self.store.delete(record.key)
        self.drive.started.clear()
        self.drive.problem = None
        for upstream in self.upstreams.values():
            upstream.refused.clear()


class Visitor:
    """A browser that shows a page, and sends its forms."""

    def __init__(self, origin: str) -> None:
        self.client = httpx.Client(base_url=origin, follow_redirects=False, timeout=20)
        self.origin = origin
        self.page = httpx.Response(204)

    def open(self, url: str) -> httpx.Response:
        """Open a page, and follow redirects within the gateway."""
        return self._followed(self.client.get(url))

    def send(self, action: str | None = None, **fields: str) -> httpx.Response:
        """Send a form of the page, the first one unless its action is given, with what was filled in."""
        forms = [form for form in self.forms() if action is None or form["action"].endswith(action)]
        given = {**forms[0]["fields"], **fields}
        headers = {"origin": self.origin, "sec-fetch-site": "same-origin"}
        return self._followed(self.client.post(forms[0]["action"], data=given, headers=headers))

    def _followed(self, response: httpx.Response) -> httpx.Response:
        while response.is_redirect:
            target = response.headers["location"]
            assert urlsplit(target).netloc in {"", urlsplit(self.origin).netloc}, "an open redirect"
            response = self.client.get(target)
        self.page = response
        return response

    def forms(self) -> list[dict[str, Any]]:
        """Return the forms of the page."""
        return [
            {
                "action": html.unescape(action),
                "fields": {
                    name: html.unescape(value)
                    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', body)
                },
            }
            for action, body in re.findall(r'<form[^>]* action="([^"]*)">(.*?)</form>', self.page.text, re.DOTALL)
        ]

    def sign_in(self, key: str = ADA) -> httpx.Response:
        """Sign in with a key on the page that asks for it."""
        return self.send("/sign-in", key=key)

    @property
    def leads_to(self) -> str:
        """URL that the page leads to by itself."""
        found = re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', self.page.text)
        assert found is not None, self.page.text
        return html.unescape(found[1])


@contextmanager
def connected(
    *,
    auth: Auth | None = None,
    file: str | Path = ":memory:",
    public_url: str | None = None,
    sign_in_client: SignInClient | None = None,
    keys: list[bytes] | None = None,
    wait_seconds: float | None = None,
    **options: Any,
) -> Iterator[Connected]:
    """Serve a gateway in this block."""
    store = SqliteCredentialStore(file, CredentialSeal(keys))
    drive = PageGrant()
    broker = CredentialBroker(store)
    broker.grants |= {"notes": KeyGrant(), "drive": drive}
    connecting = Connecting(broker, public_url=public_url, sign_in_client=sign_in_client)
    if wait_seconds is not None:
        connecting.questions.wait_seconds = wait_seconds
    upstreams = {name: Upstream(broker, name) for name in broker.grants}
    tools = [
        Tool(ToolSpecification(name=f"{name}_show", description="Show."), connecting.asking(upstream, name))
        for name, upstream in upstreams.items()
    ]

    @asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        await store.open()
        yield
        connecting.questions.close()
        await store.close()

    features = Features(tools=ToolBox(*tools), pages=connecting.pages)
    server = Server(features, name="gateway", lifespan=opened, state_keys=keys)
    auth = auth or Auth(ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB)))
    with http_server.serving(http_app(server, auth=auth, **options)) as origin:
        gateway = Connected(origin, drive, upstreams, connecting, store)
        yield gateway
        gateway.close()
