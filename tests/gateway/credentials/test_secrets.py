"""Secrets of callers: each caller's calls have its own, and nobody else's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import Caller, ToolExecutionResult
from bridge.client import HttpTransport, ServerConfig
from bridge.client.auth.errors import SignInError
from bridge.client.auth.grants import PerCaller, SecretHeader
from bridge.gateway import Gateway
from bridge.gateway.credentials.broker import CredentialBroker
from bridge.gateway.credentials.questions import AskingToolExecutor
from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import Credential, CredentialKey
from bridge.tools.spill.usage import UNLIMITED
from tests.gateway.credentials.seeing import ADA, BOB, Seeing, seeing, seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

KEYS = [b"k" * 32]
NOTES_OF_ADA, NOTES_OF_BOB = CredentialKey.of(ADA, "notes"), CredentialKey.of(BOB, "notes")


@pytest.fixture
def server() -> Iterator[Seeing]:
    with seeing() as server:
        yield server


def config_of(server: Seeing, per_caller: PerCaller) -> ServerConfig:
    return ServerConfig(name="notes", transport=HttpTransport(server.url, auth=per_caller))


@asynccontextmanager
async def opened(server: Seeing, file: str | Path = ":memory:", **options: str) -> AsyncIterator[Gateway]:
    broker = CredentialBroker(SqliteCredentialStore(file, CredentialSeal(KEYS)))
    per_caller = PerCaller(SecretHeader(), **options)  # type: ignore[arg-type]  # one of its literals
    with anyio.fail_after(60):
        async with Gateway([config_of(server, per_caller)], broker=broker) as gateway:
            yield gateway


def broker_of(gateway: Gateway) -> CredentialBroker:
    assert gateway.broker is not None
    return gateway.broker


async def give(gateway: Gateway, key: CredentialKey, secret: str) -> None:
    await broker_of(gateway).save(key, Credential(kind="secret", secret=secret))


async def test_a_thousand_interleaved_calls_of_two_callers_each_have_their_own(server: Seeing, tmp_path: Path) -> None:
    async def calls(gateway: Gateway, caller: Caller, secret: str) -> None:
        async def call(start: int) -> None:
            for nonce in range(start, 500, 10):
                assert await seen(gateway, caller, nonce) == f"Bearer {secret} {nonce}"

        async with anyio.create_task_group() as tasks:
            for start in range(10):
                tasks.start_soon(call, start)

    async with opened(server, tmp_path / "credentials.db") as gateway:
        await give(gateway, NOTES_OF_ADA, "of-ada")
        await give(gateway, NOTES_OF_BOB, "of-bob")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calls, gateway, ADA, "of-ada")
            tasks.start_soon(calls, gateway, BOB, "of-bob")
    async with opened(server, tmp_path / "credentials.db") as gateway:  # after a restart
        assert await seen(gateway, ADA) == "Bearer of-ada 0"
        assert await seen(gateway, BOB) == "Bearer of-bob 0"


async def test_a_caller_without_a_secret_is_refused_and_nothing_is_sent(server: Seeing) -> None:
    async with opened(server) as gateway:
        await give(gateway, NOTES_OF_BOB, "of-bob")
        server.requests.clear()
        assert "you have not connected it yet" in await seen(gateway, ADA)
        assert server.requests == []
        await give(gateway, NOTES_OF_ADA, "of-ada")
        assert await seen(gateway, ADA) == "Bearer of-ada 0"


async def test_a_refused_secret_is_forgotten_and_that_of_another_caller_is_not(server: Seeing) -> None:
    server.accepted = {"Bearer right", "Bearer of-bob"}
    async with opened(server) as gateway:
        await give(gateway, NOTES_OF_ADA, "wrong")
        await give(gateway, NOTES_OF_BOB, "of-bob")
        assert "it refused your credential" in await seen(gateway, ADA)
        assert await broker_of(gateway).load(NOTES_OF_ADA) is None
        assert await seen(gateway, BOB) == "Bearer of-bob 0"
        await give(gateway, NOTES_OF_ADA, "right")
        assert await seen(gateway, ADA) == "Bearer right 0"
        server.accepted = {"Bearer of-bob"}  # revoked, while its connection is open
        assert "it refused your credential" in await seen(gateway, ADA)
        assert await seen(gateway, BOB) == "Bearer of-bob 0"


async def test_a_forgotten_secret_is_not_used_any_more(server: Seeing) -> None:
    async with opened(server) as gateway:
        await give(gateway, NOTES_OF_ADA, "of-ada")
        assert await seen(gateway, ADA) == "Bearer of-ada 0"
        assert await broker_of(gateway).forget(NOTES_OF_ADA)
        assert "you have not connected it yet" in await seen(gateway, ADA)


async def test_anonymous_callers_are_refused_unless_the_configuration_shares_a_credential(server: Seeing) -> None:
    async with opened(server) as gateway:
        assert "this caller is anonymous" in await seen(gateway, None)
    async with opened(server, anonymous="shared") as gateway:
        assert await seen(gateway, None) == "None 0"


async def test_callers_of_other_issuers_with_the_same_subject_are_others(server: Seeing) -> None:
    async with opened(server) as gateway:
        await give(gateway, NOTES_OF_ADA, "of-ada")
        assert "you have not connected it yet" in await seen(gateway, Caller("ada", issuer="https://id", subject="ada"))


@pytest.mark.parametrize("text", ["", " ", "a\nb", "é", "a" * 9000])
async def test_a_secret_that_no_header_can_have_is_refused_without_being_shown(server: Seeing, text: str) -> None:
    async with opened(server) as gateway:
        grant = broker_of(gateway).grants["notes"]
        with pytest.raises(SignInError) as raised:
            await grant.accept_secret(NOTES_OF_ADA, text)  # type: ignore[attr-defined]  # it is a SecretGrant
        assert not text.strip() or text not in str(raised.value)


async def test_calls_over_the_open_connection_of_a_caller_are_sent_at_once(server: Seeing) -> None:
    async with opened(server) as gateway:
        await give(gateway, NOTES_OF_ADA, "of-ada")
        await give(gateway, NOTES_OF_BOB, "of-bob")
        executor = next(iter(gateway.tools)).executor
        assert isinstance(executor, AskingToolExecutor)
        assert executor.begin({}, {}, ADA, lambda _: None, UNLIMITED) is None  # before it is connected
        for caller in (ADA, BOB):
            await seen(gateway, caller)
        for nonce in range(3):
            for caller in (ADA, BOB):
                found: list[ToolExecutionResult | None] = []
                received = anyio.Event()

                def receive(
                    result: ToolExecutionResult | None,
                    found: list[ToolExecutionResult | None] = found,
                    received: anyio.Event = received,
                ) -> None:
                    found.append(result)
                    received.set()

                assert executor.begin({"nonce": nonce}, {}, caller, receive, UNLIMITED) is not None
                await received.wait()
                assert found[0] is not None
                assert found[0].text == f"Bearer of-{caller.name} {nonce}"
        assert executor.begin({}, {}, None, lambda _: None, UNLIMITED) is None
