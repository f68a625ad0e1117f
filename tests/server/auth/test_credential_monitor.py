"""Streams end when their credentials expire or are revoked, after pending requests are answered."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import ref

import anyio
import anyio.to_thread
import httpx
import pytest

from bridge.server import http_app
from bridge.server.auth import (
    ApiKey,
    ApiKeys,
    Auth,
    Introspection,
    IssuerUnavailableError,
    JwtVerifier,
    KeyFile,
    VerifiedToken,
)
from bridge.server.auth.credential_monitor import CredentialMonitor, MonitoredCredential
from bridge.tools.function import tool
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Handshake, Modern, Sse, bearer, talking, toolbox
from tests.server.auth.issuer import AUDIENCE, CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.auth.issuer import Issuer

DEADLINE_SECONDS = 60
KINDS = ["modern", "handshake", "sse"]
BOTH = f"ada {ADA}\nbob {BOB}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "keys"
    found.write_text(BOTH, encoding="utf-8")
    found.chmod(0o600)
    return found


@pytest.fixture
def origin(serving: Callable[..., str], path: Path) -> str:
    return serving(http_app(toolbox(), auth=KeyFile(path, check_seconds=0.02)))


@contextmanager
def streaming(kind: str, origin: str, token: str) -> Iterator[Iterator[str]]:
    """Yield the lines of an open stream."""
    with talking(kind, origin, token) as peer:
        if isinstance(peer, Sse):
            yield peer.lines
        elif isinstance(peer, Handshake):
            headers = peer.headers | peer.credential
            with peer.client.stream("GET", peer.url, headers=headers) as response:
                assert response.status_code == 200
                yield response.iter_lines()
        else:
            message = http.modern(http.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
            headers = http.modern_headers(message) | peer.credential
            with peer.client.stream("POST", peer.url, json=message, headers=headers) as response:
                assert response.status_code == 200
                lines = response.iter_lines()
                assert next(http.events(lines))["method"] == "notifications/subscriptions/acknowledged"
                yield lines


def ended(kind: str, lines: Iterator[str]) -> bool:
    """Wait for the end of a stream; return True if it ended in order."""
    said = list(http.events(lines))
    has_result = kind != "modern" or "result" in said.pop()
    return has_result and {each["method"] for each in said} <= {"notifications/tools/list_changed"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_streams_of_a_key_that_is_taken_away_end_and_no_others(kind: str, origin: str, path: Path) -> None:
    with streaming(kind, origin, ADA) as hers, streaming(kind, origin, BOB) as his:
        path.write_text(f"bob {BOB}\n", encoding="utf-8")
        assert ended(kind, hers)
        path.write_text(f"eve {'eve' * 10}\n", encoding="utf-8")
        assert ended(kind, his)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_are_replaced_in_python_end_streams_and_are_refused(kind: str, serving: Callable[..., str]) -> None:
    bob = ApiKey("bob", BOB)
    keys = ApiKeys(ApiKey("ada", ADA), bob)
    other = serving(http_app(toolbox(), auth=keys))  # which has the same keys
    origin = serving(http_app(toolbox(), auth=keys))
    with (
        streaming(kind, origin, ADA) as hers,
        httpx.Client(timeout=DEADLINE_SECONDS) as client,
    ):
        listing = http.request("tools/list")
        peers = {(at, key): Modern(client, at, bearer(key)) for at in (origin, other) for key in (ADA, BOB)}
        assert {peer.send(listing).status_code for peer in peers.values()} == {200}
        keys.replace(bob)
        found = {key: peer.send(listing).status_code for key, peer in peers.items()}
        assert found == {(at, key): 401 if key == ADA else 200 for at, key in peers}
        assert ended(kind, hers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_ends_when_its_token_expires(kind: str, serving: Callable[..., str], issuer: Issuer) -> None:
    origin = serving(http_app(toolbox(), auth=JwtVerifier(issuer.url, AUDIENCE, leeway_seconds=0)))
    expires_at = int(time.time()) + 3
    with streaming(kind, origin, issuer.token(exp=expires_at)) as lines:
        assert ended(kind, lines)
        assert time.time() >= expires_at, "and not before"


def test_a_stream_ends_when_the_issuer_takes_its_token_back(serving: Callable[..., str], issuer: Issuer) -> None:
    issuer.active["t"] = {"active": True, "sub": "ada", "aud": AUDIENCE}
    auth = Introspection(f"{issuer.url}/introspect", *CLIENT, audience=AUDIENCE, cache_seconds=0.5)
    origin = serving(http_app(toolbox(), auth=auth))
    with streaming("modern", origin, "t") as lines:
        issuer.active.clear()
        assert ended("modern", lines)


def test_the_stream_of_a_key_that_is_taken_away_ends_though_an_issuer_is_away(
    serving: Callable[..., str], issuer: Issuer, path: Path
) -> None:
    issuer.is_down = True
    asking = Introspection(f"{issuer.url}/introspect", *CLIENT, audience=AUDIENCE)
    origin = serving(http_app(toolbox(), auth=Auth(KeyFile(path, check_seconds=0.02), asking)))
    with streaming("modern", origin, ADA) as lines:
        path.write_text(f"bob {BOB}\n", encoding="utf-8")
        assert ended("modern", lines)


class Held:
    """A tool that runs until it is released."""

    def __init__(self) -> None:
        self.started, self.go_on = threading.Event(), threading.Event()

    def tool(self) -> Any:
        @tool
        async def hold() -> str:
            """Wait."""
            self.started.set()
            await anyio.to_thread.run_sync(self.go_on.wait, DEADLINE_SECONDS)
            return "done"

        return hold


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_runs_is_answered_though_its_key_was_taken_away(
    kind: str, serving: Callable[..., str], path: Path
) -> None:
    held, tools = Held(), toolbox()
    tools.add(held.tool())
    origin = serving(http_app(tools, auth=KeyFile(path, check_seconds=0.02)))
    calling = http.call("hold") | {"id": 9}
    answers: list[dict[str, Any]] = []

    with talking(kind, origin, ADA) as peer:
        caller = threading.Thread(target=lambda: answers.append(peer.ask(calling)))
        caller.start()
        try:
            assert held.started.wait(DEADLINE_SECONDS)
            path.write_text(f"bob {BOB}\n", encoding="utf-8")
            with httpx.Client(timeout=DEADLINE_SECONDS) as client:
                probe = Modern(client, origin, bearer(ADA))
                while probe.send(http.request("tools/list")).status_code == 200:
                    pass
        finally:
            held.go_on.set()
            caller.join(DEADLINE_SECONDS)
        assert [answer["result"]["content"][0]["text"] for answer in answers] == ["done"]
        if isinstance(peer, Sse):
            assert list(http.events(peer.lines)) == [], "it ends after that"


# --- when credentials are looked at --------------------------------------------------------------------------------


class Verdicts:
    """A verifier with given verdicts, which reports each request."""

    def __init__(self, *verdicts: VerifiedToken | Exception | None) -> None:
        self._verdicts = list(verdicts)
        self.asked = 0
        self.changed: Callable[[], None] = lambda: None

    async def verify_token(self, token: str) -> VerifiedToken | None:
        assert token == "t"
        self.asked += 1
        verdict = self._verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    async def keep_current(self, changed: Callable[[], None]) -> None:
        self.changed = changed


def good(**changes: Any) -> VerifiedToken:
    found = VerifiedToken(token="t", client_id="ada", scopes=["needed"], keep_seconds=math.inf)
    return found.model_copy(update=changes)


async def _end_of(*verdicts: VerifiedToken | Exception | None, was: VerifiedToken | None = None) -> None:
    """Wait until a stream is ended by the last of some verdicts."""
    verifier, has_ended = Verdicts(*verdicts), anyio.Event()
    monitor = CredentialMonitor(Auth(verifier, required_scopes=["needed"]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(monitor.keep)
        with anyio.fail_after(DEADLINE_SECONDS), MonitoredCredential(monitor, "t", was or good()).ending(has_ended.set):
            await has_ended.wait()
        assert verifier.asked == len(verdicts)
        assert len(monitor) == 0
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "last",
    [
        None,
        good(client_id="bob"),
        good(subject="bob"),
        good(claims={"iss": "https://another.example.org"}),
        good(scopes=[]),
        good(expires_at=1),
        RuntimeError("broken"),
    ],
)
async def test_a_stream_ends_where_its_credential_is_not_what_it_was(last: VerifiedToken | Exception | None) -> None:
    await _end_of(last)


@pytest.mark.anyio
async def test_an_issuer_that_cannot_be_asked_ends_no_stream() -> None:
    await _end_of(IssuerUnavailableError("down", 0.01), IssuerUnavailableError("down", 0.01), None)


@pytest.mark.anyio
@pytest.mark.parametrize("was", [good(expires_at=1), good(is_key=True)])
async def test_an_issuer_that_cannot_be_asked_saves_no_key_and_no_token_that_has_expired(was: VerifiedToken) -> None:
    await _end_of(IssuerUnavailableError("down", 0.01), was=was)


class _Away:
    """Verifier that reports the expiry of its token once, and does not respond again for an hour."""

    def __init__(self, expires_at: int) -> None:
        self._verdicts = [good(expires_at=expires_at, keep_seconds=0.1)]

    async def verify_token(self, token: str) -> VerifiedToken | None:
        assert token == "t"
        if not self._verdicts:
            raise IssuerUnavailableError("down", 3600)
        return self._verdicts.pop()


@pytest.mark.anyio
async def test_a_stream_ends_when_its_token_expires_though_its_issuer_is_away() -> None:
    expires_at, has_ended = int(time.time()) + 3, anyio.Event()
    monitor = CredentialMonitor(Auth(_Away(expires_at)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(monitor.keep)
        with (
            anyio.fail_after(DEADLINE_SECONDS),
            MonitoredCredential(monitor, "t", good(expires_at=1)).ending(has_ended.set),
        ):
            await has_ended.wait()
        assert time.time() >= expires_at, "what the issuer said last counts"
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_credential_is_looked_at_when_its_stream_opens_and_when_others_count_and_not_between() -> None:
    verifier, has_ended = Verdicts(good(), good(tools=("add",)), None), anyio.Event()
    auth = Auth(verifier)
    monitor = CredentialMonitor(auth)
    async with auth.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(monitor.keep)
        monitored = MonitoredCredential(monitor, "t", good())
        with anyio.fail_after(DEADLINE_SECONDS), monitored.ending(has_ended.set), monitored.ending(lambda: None):
            await anyio.wait_all_tasks_blocked()
            assert verifier.asked == 1
            verifier.changed()
            await anyio.wait_all_tasks_blocked()
            assert (verifier.asked, has_ended.is_set()) == (2, False)
            verifier.changed()
            await has_ended.wait()
        tasks.cancel_scope.cancel()


class _Counted:
    """Verifier that accepts every credential, and counts the verdicts that are still referenced."""

    def __init__(self) -> None:
        self._found: list[ref[VerifiedToken]] = []

    def __len__(self) -> int:
        return sum(each() is not None for each in self._found)

    async def verify_token(self, token: str) -> VerifiedToken | None:
        found = good(token=token, keep_seconds=60.0)
        self._found.append(ref(found))
        return found


@pytest.mark.anyio
async def test_credentials_whose_streams_have_ended_are_let_go() -> None:
    counted = _Counted()
    monitor = CredentialMonitor(Auth(counted))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(monitor.keep)
        with anyio.fail_after(DEADLINE_SECONDS):
            for _ in range(200):
                monitored = MonitoredCredential(monitor, "t", good())
                with monitored.ending(lambda: None):
                    await anyio.wait_all_tasks_blocked()
        assert 0 < len(counted) < 30
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_end_of_streams_names_their_bearer_as_everything_else_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await _end_of(None)
    assert "ended the open streams of 'client:ada', 1" in caplog.text


@pytest.mark.anyio
async def test_nobody_is_asked_about_credentials_without_streams() -> None:
    auth = Auth(ApiKeys(ApiKey("ada", ADA)))
    monitor = CredentialMonitor(auth)
    with MonitoredCredential(monitor, ADA, good()).ending(lambda: None):
        assert len(monitor) == 1
    assert len(monitor) == 0
