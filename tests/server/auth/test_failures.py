"""Repeated invalid credentials are throttled; valid callers behind the same address are not."""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
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
    TokenRefusedError,
    VerifiedToken,
    failures,
)
from bridge.server.auth.failures import Challenge, FailedAuthThrottle
from bridge.server.limits import Rate
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, bearer, toolbox
from tests.server.auth.issuer import AUDIENCE, CLIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.auth.issuer import Issuer

DEADLINE_SECONDS = 60
LIST = http.modern(http.request("tools/list"))
KEYS = ApiKeys(ApiKey("alice", ADA), ApiKey("bob", BOB))
NONE = Challenge(status=401, description="a key is needed")
BAD = Challenge(status=401, error="invalid_token", description="it is not known here")


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Delays of responses, in seconds; nothing waits in these tests."""
    holds: list[bool] = []

    async def hold() -> None:
        holds.append(True)

    monkeypatch.setattr(failures, "delay_refusal", hold)
    return holds


@contextmanager
def asking(origin: str, address: str = "127.0.0.1") -> Iterator[Any]:
    """Return a function that requests the list from an address with a credential."""
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(timeout=DEADLINE_SECONDS, transport=transport) as client:

        def ask(token: str | None) -> httpx.Response:
            credential = {} if token is None else bearer(token)
            return client.post(f"{origin}/mcp", json=LIST, headers=http.modern_headers(LIST) | credential)

        yield ask


@pytest.mark.parametrize("http_kind", ["direct", "httptools", "h11"])
def test_too_many_bad_credentials_are_429_and_a_good_one_of_the_same_address_comes_in(http_kind: str) -> None:
    with ExitStack() as stack:
        origin = stack.enter_context(http.serving(http_app(toolbox(), auth=KEYS), http=http_kind))
        ask = stack.enter_context(asking(origin))
        assert ask(ADA).status_code == 200
        codes = [ask(f"guess-{number}").status_code for number in range(120)]
        assert codes[:100] == [401] * 100
        assert codes.count(429) >= 1, "some are 401 where a second passes, in which one more may be"
        refused = ask("guess")
        while refused.status_code == 401:
            refused = ask("guess")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["www-authenticate"].startswith('Bearer error="invalid_token"')
        assert "too many invalid keys and tokens from this address; try again in" in refused.json()["error_description"]
        assert ask(ADA).status_code == 200
        assert ask(BOB).status_code == 200, "one that nobody has seen yet"
        assert ask(None).status_code == 401, "what a login begins with"
        elsewhere = stack.enter_context(asking(origin, "127.0.0.2"))
        assert elsewhere("guess").status_code == 401


def test_a_flood_is_told_in_a_few_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with http.serving(http_app(toolbox(), auth=KEYS)) as origin, asking(origin) as ask:
        for number in range(150):
            ask(f"guess-{number}")
    refusals = [record for record in caplog.records if record.getMessage().startswith("refused a request from")]
    assert {"with 401", "with 429"} == {" ".join(each.getMessage().split()[5:7]).rstrip(":") for each in refusals}
    assert len(refusals) <= 6, "a few more where the machine is so slow that ten seconds pass"


class _Lapsing:
    """Verifier that knows a credential once."""

    def __init__(self) -> None:
        self._known = {"lapsing"}

    async def verify_token(self, token: str) -> VerifiedToken | None:
        if token not in self._known:
            return None
        self._known.discard(token)
        return VerifiedToken(token=token, client_id="guest", scopes=[], keep_seconds=1e-9)


def test_a_credential_that_was_good_before_is_401_in_a_flood_so_that_its_bearer_renews_it() -> None:
    with http.serving(http_app(toolbox(), auth=_Lapsing())) as origin, asking(origin) as ask:
        assert ask("lapsing").status_code == 200
        while ask("guess").status_code != 429:
            pass
        assert ask("lapsing").status_code == 401
        codes = [ask("lapsing").status_code for _ in range(3)]
        assert 429 in codes, "once"


def test_an_introspected_token_of_an_address_of_many_bad_ones_comes_in(issuer: Issuer) -> None:
    issuer.active["t"] = {"active": True, "sub": "ada", "aud": AUDIENCE}
    auth = Introspection(f"{issuer.url}/introspect", *CLIENT, audience=AUDIENCE)
    with http.serving(http_app(toolbox(), auth=auth)) as origin, asking(origin) as ask:
        while ask("guess").status_code != 429:
            pass
        assert ask("t").status_code == 200
        assert issuer.asked.count("/introspect") == 2, "the same guess is asked about once in ten seconds"


@pytest.mark.anyio
async def test_refusals_are_held_back_from_who_goes_on(held: list[bool]) -> None:
    watched = FailedAuthThrottle(Rate(2, 60), clock=lambda: 100.0)
    scope = {"client": ("2001:db8::1", 1)}
    assert [(await watched.apply(scope, BAD)).status for _ in range(2)] == [401, 401]
    assert held == []
    assert [(await watched.apply(scope, BAD)).status for _ in range(10)] == [429] * 10
    assert held == [], "the first ten of a second cost nobody a wait"
    neighbour = {"client": ("2001:db8::2", 1)}
    assert (await watched.apply(neighbour, BAD)).status == 429
    assert await watched.apply(neighbour, NONE) == NONE
    assert held == [True, True]
    assert await watched.apply({"client": ("2001:db8:0:1::1", 1)}, BAD) == BAD


@pytest.mark.anyio
async def test_requests_without_a_credential_are_held_back_and_never_429(held: list[bool]) -> None:
    watched = FailedAuthThrottle(clock=lambda: 100.0)
    assert [await watched.apply({"client": None}, NONE) for _ in range(12)] == [NONE] * 12
    assert held == [True, True]
    assert await watched.apply({"client": None}, BAD) == BAD, "they are no guesses"


def test_a_token_that_has_expired_is_401_in_a_flood_so_that_its_bearer_renews_it(issuer: Issuer) -> None:
    expired = issuer.token(exp=1000)
    auth = Auth(KEYS, JwtVerifier(issuer.url, AUDIENCE, algorithms=["ES256"]), JwtVerifier(issuer.url, AUDIENCE))
    with http.serving(http_app(toolbox(), auth=auth)) as origin, asking(origin) as ask:
        while ask("guess").status_code != 429:
            pass
        answer = ask(expired)
        assert answer.status_code == 401
        assert "the token has expired" in answer.headers["www-authenticate"]
        while ask(expired[:-8] + "AAAAAAAA").status_code != 429:
            pass


@pytest.mark.anyio
async def test_expired_tokens_are_held_back_and_are_no_guesses(held: list[bool]) -> None:
    watched = FailedAuthThrottle(Rate(2, 60), clock=lambda: 100.0)
    expired = replace(BAD, is_guess=False)
    assert [await watched.apply({"client": None}, expired) for _ in range(12)] == [expired] * 12
    assert held == [True, True]
    assert await watched.apply({"client": None}, BAD) == BAD


@pytest.mark.anyio
async def test_patience_comes_back_evenly_and_an_issuer_that_is_down_costs_none() -> None:
    now = [100.0]
    watched = FailedAuthThrottle(Rate(2, 60), clock=lambda: now[0])
    scope = {"client": ("10.0.0.1", 1)}
    down = Challenge(status=503, error="temporarily_unavailable", description="…", retry_after_seconds=5)
    for _ in range(5):
        assert await watched.apply(scope, down) == down
    assert [(await watched.apply(scope, BAD)).status for _ in range(3)] == [401, 401, 429]
    now[0] += 30
    assert [(await watched.apply(scope, BAD)).status for _ in range(2)] == [401, 429]


@pytest.mark.anyio
async def test_unheard_of_tokens_of_a_suspected_address_wait_for_one_another_and_nobody_else_does(
    issuer: Issuer,
) -> None:
    issuer.answers_unheard_of.clear()
    issuer.active["t"] = {"active": True, "sub": "ada", "aud": AUDIENCE}
    found = Introspection(f"{issuer.url}/introspect", *CLIENT, audience=AUDIENCE, cache_seconds=0)
    flooded = FailedAuthThrottle(Rate(1, 600))
    scope = {"client": ("10.0.0.1", 1)}
    await flooded.apply(scope, BAD)

    async def flood(number: int) -> None:
        with flooded.verifying(scope), suppress(TokenRefusedError, IssuerUnavailableError):
            await found.verify_token(f"unheard-of-{number}")

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(flood, number)
        with anyio.fail_after(DEADLINE_SECONDS):
            while issuer.asked.count("/introspect") < 4:
                await anyio.wait_all_tasks_blocked()
            with flooded.verifying({"client": ("10.0.0.2", 1)}):
                assert await found.verify_token("t") is not None
            assert issuer.asked.count("/introspect") == 5
            with flooded.verifying(scope):
                assert await found.verify_token("t") is not None, "it was good before"
        issuer.answers_unheard_of.set()
