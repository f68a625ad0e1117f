"""Credentials of callers from a real authorization server: npm's certified ``oidc-provider``.

Logins with registration, PKCE, ``iss`` and resource indicators; refresh; revocation; token exchange and ID-JAG.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

from tests import processes
from tests.gateway.credentials.connected import Reached
from tests.gateway.credentials.test_questions_for_credentials import again, asked_url, modern_call
from tests.interop.packages import npm_package
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.credentials.connected import Visitor

pytestmark = pytest.mark.slow

VERSION = "9.5.1"
SECRET = "secret-of-the-gateway"
CALLBACK = "http://127.0.0.1/callback"
DEADLINE_SECONDS = 60
WHOAMI = '''
from bridge import InvocationContext, tool


@tool
async def whoami(context: InvocationContext, nonce: int = 0) -> str:
    """Return whom this server sees."""
    return f"{context.caller.issuer} {context.caller.subject} {nonce}"
'''


@dataclass
class Provider:
    """The authorization server."""

    origin: str

    def events(self, name: str, **members: str) -> list[dict[str, Any]]:
        """Return what has happened there."""
        events = httpx.get(f"{self.origin}/events", timeout=20).json()
        return [each for each in events if {"name": name, **members}.items() <= each.items()]

    def token(self, person: Person, resource: str) -> str:
        """Return the access token of a program that a person uses."""
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {"client_id": "program", "response_type": "code", "redirect_uri": CALLBACK, "scope": "openid read"}
        query |= {"resource": resource, "code_challenge": challenge, "code_challenge_method": "S256"}
        back = person.logged_in(f"{self.origin}/auth?{urlencode(query)}")
        code = dict(parse_qsl(urlsplit(back).query))["code"]
        data = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "resource": resource}
        data |= {"client_id": "program", "code_verifier": verifier}
        return str(httpx.post(f"{self.origin}/token", data=data, timeout=20).json()["access_token"])


@dataclass
class Person:
    """A person, with the browser in which it logs in."""

    name: str
    browser: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.browser = httpx.Client(headers={"x-person": self.name}, timeout=20)

    def logged_in(self, url: str) -> str:
        """Open the page of an authorization server, log in, and return the URL that it sends the browser back to."""
        origin = urlsplit(url).netloc
        while urlsplit(url).netloc == origin:
            answer = self.browser.get(url)
            assert answer.is_redirect, answer.text
            url = str(answer.next_request.url) if answer.next_request else ""
        return url


@contextmanager
def running(**settings: Any) -> Iterator[Provider]:
    """Run an authorization server in this block."""
    package, script = npm_package("oidc-provider", VERSION), processes.ROOT / "tests/gateway/credentials"
    command = [str(shutil.which("node")), str(script / "oidc_provider.mjs"), str(package), json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines: list[str] = []
            while "listening at" not in (line := process.stderr.readline()):
                assert line, f"the authorization server did not start: {lines}"
                lines.append(line)
            yield Provider(line.split()[-1])
        finally:
            process.terminate()
            process.stderr.read()


@dataclass
class Site:
    """A server that accepts tokens of an authorization server, and a gateway in front of it."""

    provider: Provider
    """The provider of the gateway's callers."""
    authority: Provider
    """The provider of the server."""
    server_url: str
    folder: Path
    port: int
    people: dict[str, Person]

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @contextmanager
    def gateway(self, **auth: Any) -> Iterator[Reached]:
        """Run the gateway in this block."""
        config = self.folder / "mcp.json"
        entry = {"url": self.server_url, "auth": {"per": "caller", **auth}}
        config.write_text(json.dumps({"mcpServers": {"notes": entry}}))
        serve = ("serve", str(config), "--transport", "http", "--port", str(self.port))
        issuer = ("--oauth-issuer", self.provider.origin, "--resource-url", self.gateway_url)
        client = ("--connect-client-id", "gateway", "--connect-client-secret", SECRET, "--connect-scope", "read")
        store = ("--credential-store", str(self.folder / "credentials.db"))
        with processes.serving("-m", "bridge", *serve, *issuer, *client, *store) as process:
            gateway = Reached(process.origin)
            yield gateway
            gateway.close()

    def program(self, gateway: Reached, name: str) -> httpx.Client:
        """Return the program of a person."""
        return gateway.program(self.provider.token(self.people[name], self.gateway_url))

    def at_consent(self, gateway: Reached, url: str, name: str) -> Visitor:
        """Open a link as a person, who signs in at the issuer of the gateway's tokens."""
        browser = gateway.visitor()
        browser.open(url)
        browser.send("/sign-in/0")
        browser.open(self.people[name].logged_in(browser.leads_to))
        return browser

    def connect(self, gateway: Reached, url: str, name: str) -> None:
        """Open a link, agree, and log in at the authorization server of the server."""
        browser = self.at_consent(gateway, url, name)
        browser.send(urlsplit(url).path)
        assert "notes is connected" in browser.open(self.people[name].logged_in(browser.leads_to)).text


@contextmanager
def site(folder: Path, *, trusts: bool = False, **seconds: int) -> Iterator[Site]:
    """Run the site in this block.

    Args:
        folder: Its files.
        trusts: True for a server with an authorization server of its own, which trusts that of the gateway.
        seconds: Lifetimes of access tokens, by the name of the resource.
    """
    ports = {name: free_port() for name in ("server", "gateway")}
    urls = {name: f"http://127.0.0.1:{port}/mcp" for name, port in ports.items()}
    redirect = urls["gateway"].replace("/mcp", "/connect/signed-in")
    (folder / "notes.py").write_text(WHOAMI)
    with ExitStack() as stack:
        lifetimes = {urls[name]: each for name, each in seconds.items()}
        provider = stack.enter_context(running(redirectUris=[redirect], seconds=lifetimes))
        authority = stack.enter_context(running(trusted=provider.origin)) if trusts else provider
        issuer = ("--oauth-issuer", authority.origin, "--resource-url", urls["server"])
        serve = ("serve", str(folder / "notes.py"), "--transport", "http", "--port", str(ports["server"]))
        stack.enter_context(processes.serving("-m", "bridge", *serve, *issuer))
        people = {name: Person(name) for name in ("ada", "bob")}
        for person in people.values():
            stack.enter_context(person.browser)
        yield Site(provider, authority, urls["server"], folder, ports["gateway"], people)


def text_of(answer: Any) -> str:
    """Return the text of a result."""
    return str(answer["result"]["content"][0]["text"])


def seen(program: httpx.Client, nonce: int = 0) -> str:
    """Return whom the server sees in a call."""
    return text_of(modern_call(program, "whoami", arguments={"nonce": nonce}))


def test_callers_log_in_are_refreshed_survive_a_restart_and_are_revoked(tmp_path: Path) -> None:
    with site(tmp_path, server=2) as of, ExitStack() as stack:
        provider, issuer = of.provider, of.provider.origin
        with of.gateway(type="login", scopes=["read"]) as gateway:
            programs = {name: stack.enter_context(of.program(gateway, name)) for name in of.people}
            links = {}
            for name, program in programs.items():
                asked = modern_call(program, "notes_connect")
                links[name] = asked_url(asked)
                of.connect(gateway, links[name], name)
                assert "is connected" in text_of(modern_call(program, "notes_connect", **again(asked)))
            assert len(provider.events("registration_create.success")) == 1
            assert {each["resource"] for each in provider.events("authorization.success")} == {
                of.server_url,
                of.gateway_url,
            }
            ends_at = time.monotonic() + DEADLINE_SECONDS
            nonce = 0
            # Each token is valid for 2 seconds, and each caller has a refresh token of its own.
            while len(provider.events("grant.success", grant="refresh_token")) < 4:
                assert time.monotonic() < ends_at, "tokens are not refreshed"
                with ThreadPoolExecutor(4) as threads:
                    calls = [(name, each) for each in range(nonce, nonce + 5) for name in programs]
                    found = list(threads.map(lambda each: seen(programs[each[0]], each[1]), calls))
                assert found == [f"{issuer} {name} {each}" for name, each in calls]
                nonce += 5
            assert provider.events("grant.error") == []
        with of.gateway(type="login", scopes=["read"]) as gateway:
            program = gateway.program(programs["ada"].headers["authorization"].removeprefix("Bearer "))
            with program:
                assert seen(program, 7) == f"{issuer} ada 7"
                browser = gateway.visitor()
                browser.open("/connect")
                browser.send("/sign-in/0")
                browser.open(of.people["ada"].logged_in(browser.leads_to))
                browser.send("/disconnect")
                assert provider.events("refresh_token.destroyed")
                assert asked_url(modern_call(program, "notes_connect"))
            with gateway.program(programs["bob"].headers["authorization"].removeprefix("Bearer ")) as program:
                assert seen(program, 8) == f"{issuer} bob 8"


def test_a_link_is_for_the_caller_who_caused_it_alone(tmp_path: Path) -> None:
    with site(tmp_path) as of, of.gateway(type="login") as gateway, of.program(gateway, "ada") as program:
        url = asked_url(modern_call(program, "notes_connect"))
        browser = of.at_consent(gateway, url, "bob")
        assert browser.page.status_code == 403
        assert "another caller" in browser.page.text
        assert of.provider.events("registration_create.success") == []


def test_a_response_with_another_issuer_is_not_used(tmp_path: Path) -> None:
    with site(tmp_path) as of, of.gateway(type="login") as gateway, of.program(gateway, "ada") as program:
        url = asked_url(modern_call(program, "notes_connect"))
        browser = of.at_consent(gateway, url, "ada")
        browser.send(urlsplit(url).path)
        back = httpx.URL(of.people["ada"].logged_in(browser.leads_to))
        assert back.params["iss"] == of.provider.origin
        refused = browser.open(str(back.copy_merge_params({"iss": "https://evil.example"})))
        assert (refused.status_code, "You were not logged in" in refused.text) == (400, True)
        assert of.provider.events("grant.success", resource=of.server_url) == []


def test_the_tokens_of_callers_are_exchanged(tmp_path: Path) -> None:
    with site(tmp_path) as of:
        exchange = {"type": "exchange", "tokenUrl": f"{of.provider.origin}/token", "resource": of.server_url}
        with of.gateway(**exchange, clientId="gateway", clientSecret=SECRET) as gateway, ExitStack() as stack:
            for name in of.people:
                program = stack.enter_context(of.program(gateway, name))
                assert [seen(program, nonce) for nonce in range(3)] == [
                    f"{of.provider.origin} {name} {nonce}" for nonce in range(3)
                ]
            exchanged = of.provider.events("grant.success", resource=of.server_url)
            assert len(exchanged) == 2  # once for each caller


def test_an_identity_assertion_of_another_provider_is_exchanged(tmp_path: Path) -> None:
    with site(tmp_path, trusts=True) as of, ExitStack() as stack:
        assertion = {"type": "identity_assertion", "idpTokenUrl": f"{of.provider.origin}/token"}
        assertion |= {"clientId": "gateway", "clientSecret": SECRET, "idpClientId": "gateway"}
        assertion |= {"idpClientSecret": SECRET, "subjectTokenType": "access_token", "issuer": of.authority.origin}
        with of.gateway(**assertion) as gateway:
            for name in of.people:
                program = stack.enter_context(of.program(gateway, name))
                assert seen(program, 3) == f"{of.authority.origin} {name} 3"
