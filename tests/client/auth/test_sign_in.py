from __future__ import annotations

import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from bridge import HttpTransport, OAuthLogin, ServerConfig
from bridge.client import Connection, ConnectionState
from bridge.client.auth.errors import SignInError
from bridge.client.auth.sign_in import SignIn
from bridge.client.auth.store import LoginStore, login_key
from bridge.client.transports import received_data
from bridge.errors import ServerAuthError
from tests.client.auth import authority as authorities
from tests.client.auth.conftest import DEADLINE_SECONDS, age, browse, log_in, stored_login

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(url: str, *, auth: SignIn | None = None, **said: Any) -> AsyncIterator[Connection]:
    config = ServerConfig(name="guarded", transport=HttpTransport(url, **said))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(config, auth=auth) as connection:
            yield connection


async def sum_over(connection: Connection, a: int, b: int) -> Any:
    return (await connection.call_tool("add", {"a": a, "b": b}))["structuredContent"]["result"]


@contextmanager
def hanging(authority: Authority) -> Iterator[None]:
    """Run an authorization server that does not respond, in this block or until its gate is opened."""
    authority.gate.clear()
    try:
        yield
    finally:
        authority.gate.set()


# --- logging in ------------------------------------------------------------------------------------------------------


async def test_a_person_logs_in_where_a_browser_is_provided(authority: Authority, resource: Resource) -> None:
    async with connected(resource.url, auth=SignIn(resource.url, OAuthLogin(), show_page=browse)) as connection:
        assert await sum_over(connection, 1, 2) == 3
    assert (authority.grants, authority.scopes) == (["authorization_code"], ["read"])
    assert LoginStore().path(login_key(resource.url)).stat().st_mode & 0o777 == 0o600


async def test_a_login_is_used_by_whoever_comes_later(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    async with connected(resource.url) as connection:
        assert await sum_over(connection, 1, 2) == 3
    assert (authority.grants, resource.refusals) == (["authorization_code"], [401])


async def test_a_login_serves_a_server_over_sse_too(authority: Authority, resource: Resource) -> None:
    await log_in(resource.sse_url)
    async with connected(resource.sse_url, kind="sse") as connection:
        assert await sum_over(connection, 2, 2) == 4


async def test_a_person_who_logs_in_again_is_the_same_client(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    await log_in(resource.url)
    assert len(authority.registered) == 1


async def test_a_header_comes_before_a_login(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    with pytest.raises(ServerAuthError, match="asks for credentials"):
        async with connected(resource.url, headers={"authorization": "Bearer of-somebody-else"}):
            pass
    assert resource.tokens[-1] == "of-somebody-else"


# --- nobody may be asked ---------------------------------------------------------------------------------------------


async def test_a_server_that_nobody_has_logged_in_to_needs_auth_and_the_error_names_the_command(
    authority: Authority, resource: Resource
) -> None:
    connection = Connection(ServerConfig(name="guarded", transport=HttpTransport(resource.url)))
    with anyio.fail_after(DEADLINE_SECONDS):
        await connection.open(wait=False)
        assert await connection.settled() is ConnectionState.NEEDS_AUTH
        with pytest.raises(ServerAuthError, match=f"(?s)'guarded'.*hint: run: bridge login {resource.url}"):
            await connection.call_tool("add", {"a": 1, "b": 2})
        await log_in(resource.url)
        assert await sum_over(connection, 1, 2) == 3, "the next call tries again"
        await connection.aclose()


async def test_nobody_is_asked_and_nothing_is_registered_without_a_browser(
    authority: Authority, resource: Resource
) -> None:
    with pytest.raises(ServerAuthError):
        async with connected(resource.url, auth=SignIn(resource.url, OAuthLogin())):
            pass
    assert (authority.grants, authority.registered) == ([], {})


# --- renewing --------------------------------------------------------------------------------------------------------


async def test_twenty_who_wait_share_one_refresh(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    await age(resource.url)
    sums = []
    async with connected(resource.url) as connection, connected(resource.url) as other:
        authority.revoked.add((await stored_login(resource.url)).access_token or "")
        authority.gate.clear()

        async def call(number: int) -> None:
            sums.append(await sum_over((connection, other)[number % 2], number, 0))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(call, number)
            while len(resource.refusals) < 1 + 20:  # the login counted as one
                await anyio.lowlevel.checkpoint()
            authority.gate.set()
    assert sorted(sums) == list(range(20))
    assert authority.grants == ["authorization_code", "refresh_token", "refresh_token"]


async def test_twenty_who_wait_share_one_failure(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    await age(resource.url)
    authority.refuses, authority.status = "temporarily_unavailable", 503

    async def ask() -> None:
        with pytest.raises(SignInError, match="HTTP 503"):
            await http.post(resource.url)

    with anyio.fail_after(DEADLINE_SECONDS), hanging(authority):
        async with (
            httpx2.AsyncClient(auth=SignIn(resource.url, OAuthLogin())) as http,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(20):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            authority.gate.set()
    assert authority.grants == ["authorization_code", "refresh_token"]


async def test_a_token_that_ended_while_nobody_ran_is_refreshed_before_it_is_used(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    old = (await stored_login(resource.url)).access_token
    await age(resource.url)
    async with connected(resource.url) as connection:
        assert await sum_over(connection, 1, 2) == 3
    assert authority.grants == ["authorization_code", "refresh_token"]
    assert old not in resource.tokens


async def test_a_revoked_token_is_refreshed_in_the_middle_of_things(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    async with connected(resource.url) as connection:
        await sum_over(connection, 1, 2)
        authority.revoked.add((await stored_login(resource.url)).access_token or "")
        assert await sum_over(connection, 2, 2) == 4
        assert connection.status().connects == 1, "the connection outlives its token"
    assert authority.grants == ["authorization_code", "refresh_token"]


async def test_a_login_that_cannot_be_renewed_needs_auth(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    async with connected(resource.url) as connection:
        authority.revoked.add((await stored_login(resource.url)).access_token or "")
        authority.refuses = "invalid_grant"
        with pytest.raises(ServerAuthError, match=r"(?s)has expired, or was revoked.*bridge login"):
            await sum_over(connection, 1, 2)
        while connection.state is not ConnectionState.NEEDS_AUTH:
            await anyio.lowlevel.checkpoint()
    login = await stored_login(resource.url)
    assert (login.tokens, login.client is None) == (None, False)
    assert authority.grants == ["authorization_code", "refresh_token"], "what was refused is not tried again"


async def test_an_authorization_server_that_is_away_costs_no_login(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    await age(resource.url)
    authority.refuses, authority.status = "temporarily_unavailable", 503
    with pytest.raises(ServerAuthError, match="HTTP 503"):
        async with connected(resource.url):
            pass
    authority.refuses = None
    async with connected(resource.url) as connection:
        assert await sum_over(connection, 1, 2) == 3


async def test_a_token_that_is_still_good_is_used_where_it_cannot_be_renewed(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    await age(resource.url, ends_at=time.time() + 20)
    old = (await stored_login(resource.url)).access_token
    authority.refuses, authority.status = "temporarily_unavailable", 503
    async with connected(resource.url) as connection:
        assert await sum_over(connection, 1, 2) == 3
        assert await sum_over(connection, 2, 2) == 4
    assert resource.tokens[-1] == old
    assert authority.grants == ["authorization_code", "refresh_token"], "not asked again with each request"


async def test_a_token_that_is_still_good_is_used_while_an_authorization_server_hangs(
    authority: Authority, resource: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_data, "AUTHORITY_SECONDS", 600.0)
    await log_in(resource.url)
    await age(resource.url, ends_at=time.time() + 20)
    old = (await stored_login(resource.url)).access_token
    with hanging(authority):
        async with connected(resource.url) as connection:
            for number in range(3):
                assert await sum_over(connection, number, 0) == number
            assert resource.tokens[-1] == old
            authority.gate.set()
            while resource.tokens[-1] == old:
                await sum_over(connection, 1, 2)
    assert authority.grants == ["authorization_code", "refresh_token"]


async def test_a_connection_ends_when_the_renewal_has_that_it_began(authority: Authority, resource: Resource) -> None:
    """The refresh token is valid for one use."""
    await log_in(resource.url)
    await age(resource.url, ends_at=time.time() + 20)
    old = (await stored_login(resource.url)).access_token

    async def answer_later() -> None:
        await anyio.wait_all_tasks_blocked()
        authority.gate.set()

    with hanging(authority):
        async with anyio.create_task_group() as tasks:
            async with connected(resource.url) as connection:
                assert await sum_over(connection, 1, 2) == 3
                tasks.start_soon(answer_later)
            assert (await stored_login(resource.url)).access_token != old


# --- asking for more -------------------------------------------------------------------------------------------------


async def test_a_person_is_asked_for_more_where_a_server_wants_more(authority: Authority, resource: Resource) -> None:
    async with connected(resource.url, auth=SignIn(resource.url, OAuthLogin(), show_page=browse)) as connection:
        assert await sum_over(connection, 1, 2) == 3
        assert (await connection.call_tool("erase", {}))["content"][0]["text"] == "erased"
    assert authority.scopes == ["read", "read write"]


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_call_that_wants_more_fails_alone_and_the_next_login_asks_for_it(
    authority: Authority, resource: Resource, kind: str
) -> None:
    url = resource.url if kind == "http" else resource.sse_url
    await log_in(url)
    async with connected(url) as connection:
        with pytest.raises(ServerAuthError, match=r"(?s)lacks a required scope \(write\).*run: bridge login"):
            await connection.call_tool("erase", {})
        assert await sum_over(connection, 1, 2) == 3
        assert connection.status().connects == 1
        await log_in(url)
        assert (await connection.call_tool("erase", {}))["content"][0]["text"] == "erased"
    assert authority.scopes == ["read", "read write"]


async def test_what_a_program_asks_for_comes_before_what_a_server_names(
    authority: Authority, resource: Resource
) -> None:
    await SignIn(resource.url, OAuthLogin(scopes=("read", "write")), show_page=browse).log_in()
    assert authority.scopes == ["read write"]


# --- another authorization server ------------------------------------------------------------------------------------


async def test_a_server_that_trusts_another_authority_is_registered_with_and_logged_in_to_there(
    authority: Authority, resource: Resource
) -> None:
    async with connected(resource.url, auth=SignIn(resource.url, OAuthLogin(), show_page=browse)) as connection:
        with authorities.running() as another:
            another.registered["somebody-else"] = {}
            resource.authority = another
            assert await sum_over(connection, 1, 2) == 3
            assert (list(another.registered), another.grants) == (
                ["somebody-else", "client-1"],
                ["authorization_code"],
            ), "neither the client nor the tokens of the one are shown to the other"


async def test_a_server_that_trusts_another_authority_needs_auth_where_nobody_may_be_asked(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    with authorities.running() as another:
        resource.authority = another
        with pytest.raises(ServerAuthError, match="bridge login"):
            async with connected(resource.url):
                pass
        assert another.grants == []


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_given_up_does_not_cost_the_refresh_that_it_began(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    async with connected(resource.url) as connection:
        authority.revoked.add((await stored_login(resource.url)).access_token or "")
        authority.gate.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sum_over, connection, 1, 2)
            while "refresh_token" not in authority.grants:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
            authority.gate.set()
        assert await sum_over(connection, 2, 2) == 4
    assert authority.grants == ["authorization_code", "refresh_token"]


async def test_a_call_under_way_keeps_no_other_waiting(authority: Authority, resource: Resource) -> None:
    """The SDK's own client signs one request at a time."""
    await log_in(resource.url)
    async with connected(resource.url) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(connection.call_tool, "hold", {}))
        await anyio.to_thread.run_sync(resource.is_held.wait, DEADLINE_SECONDS)
        assert await sum_over(connection, 1, 2) == 3
        tasks.cancel_scope.cancel()
