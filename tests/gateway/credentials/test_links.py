"""Links are unguessable, for one caller and server, for one use, for minutes, and bounded in number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.gateway.credentials.links import LINK_SECONDS, Links
from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import CredentialKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio
ADA = CredentialKey("https://login.example.com", "ada", "notes")
BOB = CredentialKey("https://login.example.com", "bob", "notes")


@pytest.fixture
async def store() -> AsyncIterator[SqliteCredentialStore]:
    store = SqliteCredentialStore(":memory:", CredentialSeal(None))
    await store.open()
    yield store
    await store.close()


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_link_leads_back_to_its_caller_and_server(store: Any) -> None:
    links = Links(store)
    made = await links.make(ADA, "write")
    assert await links.find(made.token) == made
    assert (made.key, made.scope) == (ADA, "write")
    assert not {"ada", "notes", "login.example.com"} & set(made.token.split("-"))
    assert made.token not in repr(made)


async def test_a_link_is_taken_once_by_one_of_several(store: Any) -> None:
    links = Links(store)
    made = await links.make(ADA)
    found: list[Any] = []

    async def take() -> None:
        found.append(await Links(store).take(made.token))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(take)
    assert [each for each in found if each is not None] == [made]
    assert await links.find(made.token) is None


async def test_a_link_expires(store: Any) -> None:
    links = Links(store, seconds=-1)
    assert await links.find((await links.make(ADA)).token) is None


async def test_a_caller_who_is_asked_again_gets_the_same_link_while_it_is_fresh(store: Any) -> None:
    clock = Clock()
    links = Links(store, clock=clock)
    first = await links.make(ADA)
    assert await links.make(ADA) == first
    others = [
        await links.make(BOB),
        await links.make(ADA, "write"),
        await links.make(CredentialKey("key", "ada", "notes")),
    ]
    assert len({first.token, *(each.token for each in others)}) == 4
    clock.now = LINK_SECONDS / 2
    assert await links.make(ADA) != first


async def test_a_used_link_is_not_given_again_also_if_another_process_took_it(store: Any) -> None:
    links = Links(store)
    first = await links.make(ADA)
    await Links(store).take(first.token)
    assert await links.make(ADA) != first


async def test_the_links_of_a_caller_are_bounded_and_the_oldest_ends(store: Any) -> None:
    links = Links(store, max_links=3)
    of_bob = await links.make(BOB)
    made = [await links.make(ADA, f"scope-{number}") for number in range(5)]
    alive = [await links.find(each.token) is not None for each in made]
    assert alive == [False, False, True, True, True]
    assert await links.find(of_bob.token) == of_bob


@pytest.mark.parametrize("token", ["", "made-up", "x" * 10_000])
async def test_an_unknown_link_is_none(store: Any, token: str) -> None:
    assert await Links(store).find(token) is None
    assert await Links(store).take(token) is None
