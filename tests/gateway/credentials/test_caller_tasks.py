"""Tasks of servers to which each caller has a credential of its own: nobody sees those of another caller."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from anyio import to_thread

from bridge import InvocationContext, ToolBox, tool
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http.app import http_app
from bridge.server.server import Server
from tests.gateway.credentials.connected import ADA, BOB
from tests.gateway.credentials.seeing import Seeing
from tests.gateway.credentials.test_questions_for_credentials import asked_url, connect, modern_call
from tests.gateway.credentials.test_served_gateway import SECRET, served
from tests.server.http_server import serving
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {ADA: "of-ada-with-enough-characters", BOB: "of-bob-with-enough-characters"}
DEADLINE_SECONDS = 60


@pytest.mark.slow
def test_a_caller_neither_reads_nor_ends_nor_watches_a_task_of_another(tmp_path: Path) -> None:
    releases = {"upstream-ada": threading.Event(), "upstream-bob": threading.Event()}

    @tool(task=True)
    async def hold(context: InvocationContext) -> str:
        """Return the caller, once it is released."""
        assert context.caller is not None
        name = context.caller.name
        assert await to_thread.run_sync(releases[name].wait, DEADLINE_SECONDS)
        return name

    auth = Auth(ApiKeys(*(ApiKey(name, key) for name, key in zip(releases, KEYS.values(), strict=True))))
    with ExitStack() as stack:
        for release in releases.values():
            stack.callback(release.set)
        origin = stack.enter_context(serving(http_app(Server(ToolBox(hold), name="notes"), auth=auth)))
        gateway = stack.enter_context(served(Seeing(url=f"{origin}/mcp"), tmp_path, SECRET))
        for key, secret in KEYS.items():
            with gateway.program(key) as program:
                connect(gateway, asked_url(modern_call(program, "notes_connect")), key, secret)
        ada, bob = (stack.enter_context(TaskClient(gateway.origin, key)) for key in KEYS)
        adas, bobs = ada.created("hold"), bob.created("hold")
        for refused in (bob.get(adas), bob.cancel(adas), bob.update(adas)):
            assert refused["code"] == -32602
            assert "or that of another gateway or caller" in refused["message"]
        states = bob.states(adas, bobs)
        assert next(states)["notifications"] == {"taskIds": [bobs]}
        releases["upstream-ada"].set()
        assert ada.settled(adas)["result"]["content"][0]["text"] == "upstream-ada"
        releases["upstream-bob"].set()
        changed = next(states)  # nothing of Ada's task, which ended before
        assert (changed["taskId"], changed["result"]["content"][0]["text"]) == (bobs, "upstream-bob")
        states.close()  # type: ignore[attr-defined]  # a generator
