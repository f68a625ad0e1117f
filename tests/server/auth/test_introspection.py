from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import anyio
import anyio.lowlevel
import pytest

from bridge.errors import DefinitionError
from bridge.server.auth import Introspection, IssuerUnavailableError, TokenRefusedError
from bridge.server.auth import introspection as introspecting
from tests.server.auth.issuer import AUDIENCE, CLIENT

if TYPE_CHECKING:
    from tests.server.auth.issuer import Issuer

pytestmark = pytest.mark.anyio


def introspection(issuer: Issuer, **options: Any) -> Introspection:
    settings = {"audience": AUDIENCE, "issuer": issuer.url} | options
    return Introspection(f"{issuer.url}/introspect", *CLIENT, **settings)


def answer(**changes: Any) -> dict[str, Any]:
    good = {"active": True, "sub": "ada", "client_id": "app", "aud": AUDIENCE, "scope": "read", "exp": time.time() + 99}
    return {name: value for name, value in (good | changes).items() if value is not None}


async def test_an_active_token_says_whose_it_is(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    found = await introspection(issuer).verify_token("t")
    assert found is not None
    assert (found.client_id, found.subject, found.scopes, found.claims and found.claims["iss"]) == (
        "app",
        "ada",
        ["read"],
        issuer.url,
    )
    assert 0 < found.keep_seconds <= 30


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"active": False}, "is not active"),
        ({"active": "true"}, "is not active"),
        ({"active": None}, "is not active"),
        ({"aud": "https://other.example.org"}, "for another audience"),
        ({"aud": None}, "for another audience"),
        ({"aud": [5]}, "for another audience"),
        ({"iss": "https://other.example.org"}, "from another issuer"),
        ({"exp": 1000}, "has expired"),
        ({"exp": "soon"}, "exp is not a time"),
        ({"nbf": time.time() + 3600}, "not valid yet"),
        ({"sub": None, "client_id": None}, "names no bearer"),
    ],
)
async def test_what_the_issuer_does_not_vouch_for_is_refused(
    issuer: Issuer, changes: dict[str, Any], message: str
) -> None:
    issuer.active["t"] = answer(**changes)
    with pytest.raises(TokenRefusedError, match=message):
        await introspection(issuer).verify_token("t")


@pytest.mark.parametrize(
    "kind",
    [
        {"token_use": "refresh_token"},
        {"token_use": "id"},
        {"typ": "Refresh"},
        {"typ": "Offline"},
        {"typ": "ID"},
        {"token_type": "refresh_token"},
        {"token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
    ],
)
async def test_a_token_that_is_said_to_be_no_access_token_is_refused(issuer: Issuer, kind: dict[str, str]) -> None:
    issuer.active["t"] = answer(aud=None, **kind)
    with pytest.raises(TokenRefusedError, match="not an access token"):
        await introspection(issuer, audience=None).verify_token("t")


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"token_use": "access_token", "token_type": "Bearer"},
        {"typ": "Bearer"},
        {"typ": "at+jwt", "token_type": "DPoP"},
        {"typ": ["odd"], "token_use": None, "token_type": 5},
    ],
)
async def test_an_access_token_may_say_that_it_is_one(issuer: Issuer, kind: dict[str, Any]) -> None:
    issuer.active["t"] = answer(aud=None, **kind)
    assert await introspection(issuer, audience=None).verify_token("t") is not None


async def test_many_who_bear_one_token_have_it_asked_for_once(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    found = introspection(issuer)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(found.verify_token, "t")
    await found.verify_token("t")
    assert issuer.asked == ["/introspect"]


async def test_an_answer_is_kept_no_longer_than_until_the_token_ends(issuer: Issuer) -> None:
    issuer.active["t"] = answer(exp=time.time() + 20)
    issuer.active["ended"] = answer(exp=time.time() - 10)
    found = introspection(issuer, cache_seconds=1000)
    ends_soon = await found.verify_token("t")
    assert ends_soon is not None
    assert 0 < ends_soon.keep_seconds <= 20
    within_the_leeway = await found.verify_token("ended")
    assert within_the_leeway is not None
    assert within_the_leeway.keep_seconds < 0
    issuer.active["ended"] = {"active": False}
    with pytest.raises(TokenRefusedError, match="is not active"):
        await found.verify_token("ended")


async def failing(found: Introspection, number: int) -> None:
    async def one() -> None:
        with pytest.raises(IssuerUnavailableError, match="HTTP status 500"):
            await found.verify_token("t")

    async with anyio.create_task_group() as tasks:
        for _ in range(number):
            tasks.start_soon(one)


async def test_those_who_wait_for_one_token_share_the_failure_to_ask(issuer: Issuer) -> None:
    issuer.is_down = True
    with patch.object(introspecting, "FAILED_SECONDS", 0):
        await failing(introspection(issuer), 20)
    assert issuer.asked == ["/introspect"]


async def test_an_issuer_that_just_failed_is_not_asked_about_the_same_token_for_a_moment(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    issuer.is_down = True
    found = introspection(issuer)
    with patch.object(introspecting, "FAILED_SECONDS", 1000):
        await failing(found, 1)
        await failing(found, 1)
    assert issuer.asked == ["/introspect"]
    issuer.is_down = False
    with patch.object(introspecting, "monotonic", lambda: time.monotonic() + 1001):
        assert await found.verify_token("t") is not None


async def test_who_waits_for_a_token_asks_where_the_one_that_asked_went_away(issuer: Issuer) -> None:
    issuer.answers_unheard_of.clear()
    found = introspection(issuer)
    refused = anyio.Event()

    async def waits() -> None:
        with pytest.raises(TokenRefusedError, match="is not active"):
            await found.verify_token("t")
        refused.set()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as all_tasks:
            async with anyio.create_task_group() as asking:
                asking.start_soon(found.verify_token, "t")
                await anyio.lowlevel.checkpoint()
                all_tasks.start_soon(waits)
                await anyio.lowlevel.checkpoint()
                asking.cancel_scope.cancel()
            issuer.answers_unheard_of.set()
            await refused.wait()


async def test_an_answer_that_is_too_old_is_asked_for_again(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    found = introspection(issuer, cache_seconds=0)
    await found.verify_token("t")
    issuer.active["t"] = {"active": False}
    with pytest.raises(TokenRefusedError, match="is not active"):
        await found.verify_token("t")


async def test_an_issuer_that_is_not_there_leaves_it_open(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    found = introspection(issuer)
    await found.verify_token("t")
    issuer.is_down = True
    assert await found.verify_token("t") is not None
    with pytest.raises(IssuerUnavailableError, match="HTTP status 500"):
        await found.verify_token("u")


async def test_a_wrong_secret_is_no_fault_of_the_token_and_is_not_shown(issuer: Issuer) -> None:
    found = Introspection(f"{issuer.url}/introspect", "bridge", "wrong-secret", audience=AUDIENCE)
    with pytest.raises(IssuerUnavailableError, match="HTTP status 401") as caught:
        await found.verify_token("t")
    assert "wrong-secret" not in f"{caught.value} {found!r}"


async def test_a_token_that_is_too_long_is_not_asked_for(issuer: Issuer) -> None:
    with pytest.raises(TokenRefusedError, match="over 16384 bytes"):
        await introspection(issuer).verify_token("x" * 20_000)
    assert issuer.asked == []


def test_an_empty_audience_is_a_mistake() -> None:
    with pytest.raises(DefinitionError, match="pass None if"):
        Introspection("https://issuer.example.org/introspect", *CLIENT, audience="")


async def test_who_bears_a_token_is_told_by_sub_then_by_username_then_by_the_client(issuer: Issuer) -> None:
    answers = {
        "both": answer(username="ada@example.org"),
        "ada": answer(sub=None, username="ada@example.org"),
        "bob": answer(sub="", username="bob@example.org"),
        "own": answer(sub=None),
    }
    issuer.active.update(answers)
    verifier = introspection(issuer)
    found = [await verifier.verify_token(token) for token in answers]
    assert [each and (each.client_id, each.subject) for each in found] == [
        ("app", "ada"),
        ("app", "ada@example.org"),
        ("app", "bob@example.org"),
        ("app", None),
    ]


async def test_a_token_that_is_not_active_is_not_asked_about_again_at_once(issuer: Issuer) -> None:
    found = introspection(issuer)
    for _ in range(3):
        with pytest.raises(TokenRefusedError, match="is not active"):
            await found.verify_token("unheard-of")
    assert issuer.asked == ["/introspect"]


async def test_unheard_of_tokens_drive_out_no_answer_about_a_good_one(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    found = introspection(issuer)
    await found.verify_token("t")
    with patch.object(introspecting, "_MAX_CACHED", 2):
        for number in range(5):
            with pytest.raises(TokenRefusedError):
                await found.verify_token(f"unheard-of-{number}")
    issuer.is_down = True
    assert await found.verify_token("t") is not None


async def test_a_flood_of_unheard_of_tokens_waits_in_line_and_known_callers_do_not(issuer: Issuer) -> None:
    issuer.active["t"] = answer()
    with patch.object(introspecting, "MAX_REQUESTS", 2):
        found = introspection(issuer, cache_seconds=0, wait_seconds=0.01)
    await found.verify_token("t")
    issuer.asked.clear()
    issuer.answers_unheard_of.clear()
    refused: list[str] = []
    all_answered = anyio.Event()

    async def flood(number: int) -> None:
        try:
            await found.verify_token(f"unheard-of-{number}")
        except (TokenRefusedError, IssuerUnavailableError) as error:
            refused.append(type(error).__name__)
        if len(refused) == 8:
            all_answered.set()

    async with anyio.create_task_group() as tasks:
        for number in range(2 + 8):
            tasks.start_soon(flood, number)
        with anyio.fail_after(20):
            await all_answered.wait()
            assert await found.verify_token("t") is not None
        assert refused == ["IssuerUnavailableError"] * 8
        issuer.answers_unheard_of.set()
    assert refused.count("TokenRefusedError") == 2
    assert len(issuer.asked) == 2 + 1


def test_an_issuer_that_is_asked_without_encryption_earns_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Introspection("http://login.example.org/introspect", *CLIENT, audience=AUDIENCE, issuer="https://login.example.org")
    assert "the introspection endpoint is reached without encryption" in caplog.text
    assert CLIENT[1] not in caplog.text
