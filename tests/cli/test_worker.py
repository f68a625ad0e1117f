"""``bridge worker``, with real processes."""

from __future__ import annotations

import os
import re
import signal
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.redis_server import redis_server
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run, Start
    from tests.redis_server import RedisServer

TOOLS = '''
    import os
    from pathlib import Path
    import anyio
    from bridge import tool


    @tool(task=True)
    def where() -> int:
        """Tell the process."""
        return os.getpid()


    @tool(task=True)
    async def wait() -> None:
        """Wait for the end."""
        Path("begun").touch()
        await anyio.sleep_forever()


    @tool(task=True, annotations={"idempotentHint": True})
    async def wait_once() -> int:
        """Wait for the end, and only in the first run."""
        begun = Path("begun-once")
        if begun.exists():
            return os.getpid()
        begun.touch()
        return await anyio.sleep_forever()
'''


@pytest.fixture
def redis(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    (directory / "jobs.py").write_text(dedent(TOOLS), encoding="utf-8")
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


def options(redis: RedisServer) -> dict[str, Any]:
    return {"env": {"BRIDGE_REDIS_URL": redis.url, "BRIDGE_STATE_KEYS": "k" * 32}}


SERVE = ("serve", "jobs.py", "--transport", "http", "--port", "0")


@pytest.mark.skipif(sys.platform == "win32", reason="processes are ended by signals")
def test_a_worker_runs_what_a_replica_leaves_and_hands_on_what_it_cannot_end(
    start: Start, redis: RedisServer, directory: Path
) -> None:
    settings = options(redis)
    with start(*SERVE, "--max-running-tasks", "0", **settings) as web, TaskClient(origin_of(web.url())) as client:
        waiting = client.created("where")
        assert client.get(waiting)["status"] == "working"
        with start(
            "worker", "jobs.py", "--drain-timeout", "0.1", "--admin-port", "0", "--metrics", **settings
        ) as worker:
            admin = worker.line_with("operations at").rpartition(" at ")[2]
            worker.line_with("running tasks of jobs")
            where = int(client.settled(waiting)["result"]["content"][0]["text"])
            assert where not in {os.getpid(), web.popen.pid}
            assert httpx.get(f"{admin}/readyz").status_code == 200
            metrics = httpx.get(f"{admin}/metrics").text
            assert re.search(r"^bridge_tasks_queued(\{.*\})? [01].0$", metrics, re.MULTILINE)
            once, again = client.created("wait"), client.created("wait_once")
            while not all((directory / name).exists() for name in ("begun", "begun-once")):
                client.get(once)
            assert worker.end(signal.SIGTERM) == 0
        assert "its outcome is unknown" in client.settled(once)["error"]["message"]
        assert client.get(again)["status"] == "working"
        with start("worker", "jobs.py", **settings):
            assert client.settled(again)["status"] == "completed"


def origin_of(url: str) -> str:
    return url.removesuffix("/mcp")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no workers of one port")
def test_workers_of_one_port_answer_for_each_others_tasks(start: Start, redis: RedisServer) -> None:
    with start(*SERVE, "--workers", "2", **options(redis)) as process:
        origin = origin_of(process.url())
        with TaskClient(origin) as client:
            ids = [client.created("where") for _ in range(10)]
        for each in ids:  # each over its own connection, which either of the two may accept
            with TaskClient(origin) as client:
                assert client.settled(each)["status"] == "completed"


def test_a_worker_needs_a_redis_and_a_port_for_metrics(run: Run, redis: RedisServer) -> None:
    refused = run("worker", "jobs.py")
    assert refused.returncode == 2
    assert "--redis-url is missing: the URL of the Redis where tasks wait" in refused.stderr
    refused = run("worker", "jobs.py", "--metrics", **options(redis))
    assert refused.returncode == 2
    assert "--metrics needs --admin-port" in refused.stderr
    redis.end()
    refused = run("worker", "jobs.py", **options(redis))
    assert refused.returncode == 1
    assert "cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr
