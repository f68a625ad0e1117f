"""``bridge serve`` with servers to which each caller has a credential of its own, from the first call to the last."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests import forks, processes
from tests.client.auth import authority as authorities
from tests.gateway.credentials.connected import ADA, BOB, URL_ELICITATION, Reached, Visitor
from tests.gateway.credentials.seeing import Seeing, seeing
from tests.gateway.credentials.test_questions_for_credentials import again, asked_url, connect, modern_call
from tests.server.http_server import call, modern, modern_headers, open_session, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.client.auth.authority import Authority

LOGIN = {"type": "login", "per": "caller"}
SECRET = {"type": "secret", "per": "caller", "header": "Authorization: Bearer {secret}"}


@contextmanager
def served(server: Seeing, folder: Path, auth: Any, *options: str) -> Iterator[Reached]:
    """Run ``bridge serve`` in front of the server."""
    config, keys = folder / "mcp.json", folder / "keys"
    config.write_text(json.dumps({"mcpServers": {"notes": {"url": server.url, "auth": auth}}}), encoding="utf-8")
    keys.write_text(f"ada {ADA}\nbob {BOB}\n", encoding="utf-8")
    keys.chmod(0o600)
    store = ("--credential-store", str(folder / "credentials.db"))
    serve = ("serve", str(config), "--transport", "http", "--port", "0", "--api-keys", str(keys))
    with processes.serving("-m", "bridge", *serve, *store, *options) as process:
        gateway = Reached(process.origin)
        yield gateway
        gateway.close()


@pytest.fixture
def server() -> Iterator[Seeing]:
    with seeing() as server:
        yield server


@pytest.fixture
def authority(server: Seeing) -> Iterator[Authority]:
    with authorities.running() as authority:
        server.authority = authority.origin
        server.accepted = set()
        yield authority


def text_of(answer: Any) -> str:
    """Return the text of a result."""
    return str(answer["result"]["content"][0]["text"])


def at_authority(gateway: Reached, url: str, key: str = ADA) -> tuple[Visitor, httpx.URL]:
    """Open a link and agree; return the browser, and where the authorization server sends it back."""
    browser = gateway.visitor()
    browser.open(url)
    browser.sign_in(key)
    browser.send(browser.page.url.path)
    return browser, httpx.URL(httpx.get(browser.leads_to).headers["location"])


def log_in(gateway: Reached, server: Seeing, authority: Authority, url: str, key: str = ADA) -> None:
    """Log in by a link; the server accepts the token from now on."""
    browser, back = at_authority(gateway, url, key)
    assert "notes is connected" in browser.open(str(back)).text
    assert server.accepted is not None
    server.accepted |= {f"Bearer {token}" for token in authority.issued}


@pytest.mark.slow
def test_callers_give_keys_of_their_own_and_keep_them_over_a_restart(server: Seeing, tmp_path: Path) -> None:
    with served(server, tmp_path, SECRET) as gateway, gateway.program() as ada, gateway.program(BOB) as bob:
        for program, key, secret in ((ada, ADA, "of-ada"), (bob, BOB, "of-bob")):
            asked = modern_call(program, "whoami")
            assert server.url in str(asked["result"]["inputRequests"])
            connect(gateway, asked_url(asked), key, secret)
            assert text_of(modern_call(program, "whoami", **again(asked))) == f"Bearer {secret} 0"
        for _ in range(3):
            assert text_of(modern_call(ada, "whoami")) == "Bearer of-ada 0"
            assert text_of(modern_call(bob, "whoami")) == "Bearer of-bob 0"
    assert ADA not in str(server.requests)
    assert BOB not in str(server.requests)
    with served(server, tmp_path, SECRET) as gateway, gateway.program() as ada:
        assert text_of(modern_call(ada, "whoami")) == "Bearer of-ada 0"
        browser = gateway.visitor()
        browser.open("/connect")
        browser.sign_in()
        browser.send("/disconnect")
        assert asked_url(modern_call(ada, "whoami"))


def test_a_gateway_for_other_machines_needs_its_public_url(tmp_path: Path) -> None:
    config, keys = tmp_path / "mcp.json", tmp_path / "keys"
    config.write_text(json.dumps({"mcpServers": {"notes": {"url": "http://127.0.0.1:1/mcp", "auth": SECRET}}}))
    keys.write_text(f"ada {ADA}\n")
    command = ("serve", str(config), "--transport", "http", "--host", "0.0.0.0", "--port", "0")
    store = ("--api-keys", str(keys), "--credential-store", str(tmp_path / "credentials.db"))
    failed = forks.run(["-m", "bridge", *command, *store], cwd=tmp_path, env=os.environ, timeout=60)
    assert failed.returncode == 2
    assert "--public-url" in failed.stderr


@pytest.mark.slow
def test_a_caller_of_2025_11_25_connects_as_well(server: Seeing, tmp_path: Path) -> None:
    with served(server, tmp_path, SECRET) as gateway, gateway.program() as program:
        headers = open_session(program, "/mcp", URL_ELICITATION)
        refused = program.post("/mcp", json=call("whoami"), headers=headers).json()
        assert refused["error"]["code"] == -32042
        connect(gateway, refused["error"]["data"]["elicitations"][0]["url"], ADA, "of-ada")
        done = program.post("/mcp", json=call("whoami"), headers=headers)
        assert "Bearer of-ada 0" in done.text


@pytest.mark.slow
def test_a_caller_logs_in_and_again_for_a_scope_that_is_missing(
    server: Seeing, authority: Authority, tmp_path: Path
) -> None:
    with served(server, tmp_path, LOGIN) as gateway, gateway.program() as program:
        asked = modern_call(program, "whoami")
        log_in(gateway, server, authority, asked_url(asked))
        assert text_of(modern_call(program, "whoami", **again(asked))).startswith("Bearer ")
        server.accepted, server.scope = set(), "write"
        asked = modern_call(program, "whoami")
        assert "log in again, for the permission 'write'" in str(asked["result"]["inputRequests"])
        log_in(gateway, server, authority, asked_url(asked))
        assert authority.scopes[-1] == "write"
        server.scope = None
        assert text_of(modern_call(program, "whoami", **again(asked))).startswith("Bearer ")
    assert ADA not in str(server.requests)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"iss": "https://evil.example"}, {"iss": ""}, {"code": "stolen"}])
def test_a_redirect_of_another_authorization_server_connects_nothing(
    server: Seeing, authority: Authority, tmp_path: Path, change: dict[str, str]
) -> None:
    with served(server, tmp_path, LOGIN) as gateway, gateway.program() as program:
        browser, back = at_authority(gateway, asked_url(modern_call(program, "whoami")))
        refused = browser.open(str(back.copy_merge_params(change)))
        assert refused.status_code == 400
        assert "You were not logged in" in refused.text
        assert asked_url(modern_call(program, "whoami"))


@pytest.mark.slow
def test_workers_share_links_and_credentials(server: Seeing, tmp_path: Path) -> None:
    keys = ("--workers", "2", "--state-keys", "k" * 40)
    with served(server, tmp_path, SECRET, *keys) as gateway:
        for key, secret in ((ADA, "of-ada"), (BOB, "of-bob")):
            with gateway.program(key) as program:
                asked = modern_call(program, "whoami")
            connect(gateway, asked_url(asked), key, secret)  # each request opens a connection, to any worker
            for params in (again(asked), {}, {}, {}):
                with gateway.program(key) as program:
                    assert text_of(modern_call(program, "whoami", **params)) == f"Bearer {secret} 0"


@pytest.mark.slow
def test_a_caller_connects_a_server_whose_tools_are_listed_only_then(server: Seeing, tmp_path: Path) -> None:
    server.accepted, server.needs_credentials = {"Bearer of-ada"}, True
    with served(server, tmp_path, SECRET | {"listPer": "caller"}) as gateway, gateway.program() as program:
        asked = modern_call(program, "notes_connect")
        connect(gateway, asked_url(asked), ADA, "of-ada")
        for params in (again(asked), {}):
            assert text_of(modern_call(program, "notes_connect", **params)) == (
                "'notes' is connected; list the tools again"
            )
        message = modern(request("tools/list"))
        answered = program.post("/mcp", json=message, headers=modern_headers(message)).json()
        assert [each["name"] for each in answered["result"]["tools"]] == ["whoami"]
        assert text_of(modern_call(program, "whoami")) == "Bearer of-ada 0"


@pytest.mark.slow
def test_the_audit_log_has_the_grant_of_each_call_and_no_credential(server: Seeing, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    options = ("--audit-log", str(audit), "--log-arguments")
    with served(server, tmp_path, SECRET, *options) as gateway, gateway.program() as ada, gateway.program(BOB) as bob:
        asked = modern_call(ada, "whoami")
        connect(gateway, asked_url(asked), ADA, "of-ada")
        assert text_of(modern_call(ada, "whoami", **again(asked))) == "Bearer of-ada 0"
        modern_call(bob, "whoami")
    text = audit.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    calls = [record for record in records if record["event"] == "call"]
    assert [(each["caller"], each["server"], each["grant"]) for each in calls] == [
        ("ada", "notes", "secret"),
        ("ada", "notes", "secret"),
        ("bob", "notes", "secret"),
    ]
    for secret in ("of-ada", ADA, BOB, "/connect/link/"):
        assert secret not in text
