"""Limits of bytes hold for the results of tasks of other servers, by each way to a client."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from bridge import Server, TaskPolicy, tool
from bridge.client import MemoryTransport, ServerConfig
from bridge.gateway import Gateway
from bridge.server import Profile, http_app, namespaced
from bridge.server.limits import Limits, Rate, guard
from bridge.tools.lifespan import Lifespan
from tests.server import http_server as http
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


@tool(task=TaskPolicy(poll_interval_seconds=0.02))
async def letters(count: int) -> str:
    """Return letters."""
    return "x" * count


@contextmanager
def gateway(*, prefix: str = "", profiles: Sequence[Profile] = (), **limits: Any) -> Iterator[TaskClient]:
    transport = MemoryTransport(Server(letters, name="up"))
    upstream = Gateway([ServerConfig(name="up", transport=transport, protocol="2026-07-28", required=True)])

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with upstream:
            yield

    features = replace(upstream.features, mounted_lifespans=(Lifespan(running),))
    features = namespaced(features, prefix) if prefix else features
    app = http_app(Server(features, name="gateway", limits=Limits(**limits)), profiles=profiles)
    with http.serving(app) as origin, TaskClient(origin) as client:
        yield client


def test_a_result_over_the_maximum_is_an_error_in_its_place() -> None:
    with gateway(max_result_bytes=4000) as client:
        found = client.settled(client.created("letters", count=1000))
        assert found["result"]["content"] == [{"type": "text", "text": "x" * 1000}]
        task_id = client.created("letters", count=10_000)
        found = client.settled(task_id)
        (text,) = found["result"]["content"]
        assert (found["status"], found["result"]["isError"]) == ("completed", True)
        assert "and may have 4000: ask for less" in text["text"]
        notified = next(each for each in client.states(task_id) if "result" in each)
        assert notified["result"]["content"] == [text]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("text", {"profiles": [Profile(name="default", rename={"letters": "text"})]}),
        ("x_letters", {"prefix": "x"}),
    ],
    ids=["profile", "namespace"],
)
def test_a_limit_goes_by_the_name_that_callers_know(name: str, changed: dict[str, Any]) -> None:
    with gateway(tool_result_bytes={name: 4000}, **changed) as client:
        found = client.settled(client.created(name, count=10_000))
        assert found["result"]["isError"] is True
        assert f"the result of '{name}' has" in found["result"]["content"][0]["text"]
        assert client.settled(client.created(name, count=1))["result"]["isError"] is False
    with gateway(tool_result_bytes={"letters": 4000}, **changed) as client:
        assert client.settled(client.created(name, count=10_000))["result"]["isError"] is False


@pytest.mark.parametrize("is_notified", [False, True], ids=["tasks/get", "notification"])
def test_the_bytes_of_a_result_are_counted(is_notified: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HOLD_SECONDS", 0)
    with gateway(byte_rate=Rate(4000, 1_000_000)) as client:
        task_id = client.created("letters", count=10_000)
        if is_notified:
            assert next(each for each in client.states(task_id) if "result" in each)["status"] == "completed"
        else:
            while client.get(task_id)["status"] == "working":
                """It has not ended yet."""
        refused = client.call("letters", count=1)
    assert refused["data"]["retryAfterSeconds"] > 0
