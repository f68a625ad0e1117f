from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.hosting.child_process import WorkerChannel, without_secrets
from bridge.hosting.process import HostingError

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 60


@pytest.mark.parametrize(
    ("arguments", "kept", "environment"),
    [
        (["serve", "t.py"], ["serve", "t.py"], {}),
        (["serve", "--api-key", "s1", "t.py"], ["serve", "t.py"], {"BRIDGE_API_KEY": "s1"}),
        (["serve", "--api-key=s1", "--api-key", "s2,s3"], ["serve"], {"BRIDGE_API_KEY": "s1,s2,s3"}),
        (
            ["serve", "--oauth-client-secret", "a", "--oauth-client-secret=b=c"],
            ["serve"],
            {"BRIDGE_OAUTH_CLIENT_SECRET": "b=c"},
        ),
        (["serve", "--", "run", "--api-key", "its-own"], ["serve", "--", "run", "--api-key", "its-own"], {}),
        (["serve", "--api-keys", "file"], ["serve", "--api-keys", "file"], {}),
        (["serve", "--api-key"], ["serve"], {"BRIDGE_API_KEY": ""}),
    ],
)
def test_a_childs_command_line_shows_no_secret(
    arguments: list[str], kept: list[str], environment: dict[str, str]
) -> None:
    assert without_secrets(arguments) == (kept, environment)


class Parent:
    """The parent's end of a channel."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.settimeout(DEADLINE_SECONDS)
        self._lines = end.makefile("rb")

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines.readline())
        return found

    def tell(self, message: dict[str, Any]) -> None:
        self._end.sendall(json.dumps(message).encode() + b"\n")


@contextmanager
def channel() -> Iterator[tuple[Parent, WorkerChannel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # It ends as soon as its parent has.
        yield Parent(ours), WorkerChannel(theirs, lambda: True, None)
        ours.shutdown(socket.SHUT_RDWR)


def in_thread(function: Any, *arguments: Any) -> Any:
    return anyio.to_thread.run_sync(function, *arguments)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_worker_that_answers_a_question_slowly_gives_signs_of_life() -> None:
    with channel() as (parent, worker), anyio.fail_after(DEADLINE_SECONDS):
        may_answer = threading.Event()
        worker.answers["slow"] = lambda question: may_answer.wait(DEADLINE_SECONDS) and question
        worker.opened(0, {})
        assert (await in_thread(parent.read))["say"] == "opened"
        parent.tell({"ask": "slow", "question": "x", "number": 7})
        parent.tell({"give": "pulse"})
        assert await in_thread(parent.read) == {"say": "pulse"}
        may_answer.set()
        assert await in_thread(parent.read) == {"reply": 7, "answer": "x"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_each_reload_that_is_asked_for_gets_its_outcome() -> None:
    outcomes: dict[str, str] = {}

    async def reload(worker: WorkerChannel, name: str) -> None:
        try:
            await worker.reload()
        except HostingError as error:
            outcomes[name] = str(error)
        else:
            outcomes[name] = "done"

    with channel() as (parent, worker), anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            numbers = []
            for name in ("first", "second"):
                tasks.start_soon(reload, worker, name)
                message = await in_thread(parent.read)
                assert message["give"] == "reload"
                numbers.append(message["number"])
            parent.tell({"reloaded": "no", "number": numbers[0]})
            parent.tell({"reloaded": None, "number": numbers[1]})
        assert outcomes == {"first": "no", "second": "done"}
