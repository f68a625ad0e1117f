"""Requests that a server answers only after its user has visited a page."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from bridge.client import ClientHandlers, Connection, HttpTransport, ServerConfig
from bridge.errors import ServerRefusedError
from bridge.tools.questions import ElicitationAnswer, UrlElicitation
from tests.gateway.between import text_of
from tests.gateway.credentials.connected import ADA, Connected, connected
from tests.gateway.credentials.test_questions_for_credentials import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge.tools.context import InvocationContext
    from bridge.types import Json

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
DEADLINE_SECONDS = 60


@pytest.fixture
def gateway() -> Iterator[Connected]:
    with connected() as gateway:
        yield gateway


class User:
    """A user who agrees to visit pages."""

    def __init__(self, gateway: Connected, action: Any = "accept") -> None:
        self.gateway = gateway
        self.action = action
        self.asked: list[UrlElicitation] = []
        self.agreed = anyio.Event()

    async def elicit(self, question: Any, _: InvocationContext) -> ElicitationAnswer:
        assert isinstance(question, UrlElicitation)
        self.asked.append(question)
        self.agreed.set()
        return ElicitationAnswer(self.action)

    async def visit(self) -> None:
        """Visit the page of the last question, and give a key there."""
        await anyio.to_thread.run_sync(connect, self.gateway, self.asked[-1].url)

    @asynccontextmanager
    async def connection(self, era: Any) -> AsyncIterator[Connection]:
        """Connect to the gateway."""
        transport = HttpTransport(f"{self.gateway.origin}/mcp", headers={"authorization": f"Bearer {ADA}"})
        handlers = ClientHandlers(elicitation=self.elicit)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with Connection(
                ServerConfig(name="gateway", transport=transport, protocol=era), handlers=handlers
            ) as connection:
                yield connection


@ERAS
async def test_a_call_goes_on_when_the_page_was_completed(gateway: Connected, era: str) -> None:
    user, results = User(gateway), list["Json"]()
    async with user.connection(era) as connection, anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await connection.call_tool("notes_show", {}))

        tasks.start_soon(call)
        await user.agreed.wait()
        await user.visit()
    assert [text_of(each) for each in results] == ["ada has sesame"]
    assert len(user.asked) == 1


async def test_a_call_is_sent_again_if_the_server_does_not_notify(
    gateway: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.connecting.questions, "_notify_when_there", lambda *_: None)
    monkeypatch.setattr("bridge.client.connection.handlers.COMPLETION_SECONDS", 0.01)
    await test_a_call_goes_on_when_the_page_was_completed(gateway, "legacy")


@ERAS
async def test_a_call_of_a_user_who_does_not_agree_fails(gateway: Connected, era: str) -> None:
    user = User(gateway, "decline")
    async with user.connection(era) as connection:
        if era == "legacy":
            with pytest.raises(ServerRefusedError, match="give a key or token of yours") as caught:
                await connection.call_tool("notes_show", {})
            assert caught.value.code == -32042
        else:
            assert (await connection.call_tool("notes_show", {}))["isError"] is True
    assert len(user.asked) == 1


async def test_a_user_is_not_asked_for_ever(gateway: Connected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.connection.handlers.VISIT_SECONDS", 0.0)
    monkeypatch.setattr("bridge.client.connection.handlers.COMPLETION_SECONDS", 0.01)
    user = User(gateway)
    async with user.connection("legacy") as connection:
        with pytest.raises(ServerRefusedError, match="give a key or token of yours"):
            await connection.call_tool("notes_show", {})


async def test_a_client_that_cannot_ask_gets_the_link_in_words(gateway: Connected) -> None:
    transport = HttpTransport(f"{gateway.origin}/mcp", headers={"authorization": f"Bearer {ADA}"})
    config = ServerConfig(name="gateway", transport=transport, protocol="legacy")
    async with Connection(config) as connection:
        result = await connection.call_tool("notes_show", {})
    assert "/connect/link/" in text_of(result)


@pytest.mark.parametrize("elicitations", [None, [], {}, ["x"], [{}], [{"mode": "form", "elicitationId": "1"}]])
async def test_a_malformed_list_of_pages_is_the_error_that_it_came_with(elicitations: Any) -> None:
    from bridge.client.connection.handlers import UrlElicitations  # noqa: PLC0415
    from bridge.client.connection.status import Listeners  # noqa: PLC0415
    from bridge.errors import ServerFailure  # noqa: PLC0415

    failure = ServerFailure(server="other", phase="calling", reason="visit a page")
    error = ServerRefusedError(failure, -32042, "visit a page", {"elicitations": elicitations})
    pages: Any = UrlElicitations(ClientHandlers(elicitation=User(None).elicit), Listeners(), None)  # type: ignore[arg-type]  # unused
    assert await pages.visited(error) is False
