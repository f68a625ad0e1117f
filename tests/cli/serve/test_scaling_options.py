from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.redis_server import redis_server
from tests.server.cluster.speaking import Talk, message_in, text_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

SERVE = ("serve", "calculator.py", "--transport", "http", "--port", "0")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sockets are handed down on POSIX")
def test_workers_with_a_redis_share_sessions(start: Start, tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        secret = redis.url.replace("redis://", "redis://default:@")
        with start(*SERVE, "--workers", "2", "--redis-url", secret) as process:
            url = process.url()
            assert process.line_with("workers") == "2 workers: SSE is off, because it needs a single process"
            talk = Talk(url)
            for a in range(20):  # each over its own connection
                assert text_of(message_in(talk.sum(url, a, 2))) == str(a + 2)
            assert talk.end(url) == 200
            assert [talk.sum(url, 1, 2).status_code for _ in range(10)] == [404] * 10


@pytest.mark.parametrize(
    ("more", "keys", "is_said"),
    [
        ((), "", True),
        ((), "k" * 32, False),
        pytest.param(("--workers", "2"), "", False, marks=pytest.mark.slow),
    ],
)
def test_replicas_that_lack_the_keys_of_the_others_say_so(
    start: Start, tmp_path: Path, more: tuple[str, ...], keys: str, is_said: bool
) -> None:
    environment = {"BRIDGE_STATE_KEYS": keys} if keys else {}
    with redis_server(tmp_path) as redis, start(*SERVE, *more, "--redis-url", redis.url, env=environment) as process:
        process.url()
        assert process.end(signal.SIGTERM) == 0
        told = [line.rpartition("; ")[2] for line in process.seen if "cannot decrypt the state" in line]
        assert told == ["set the same BRIDGE_STATE_KEYS for all replicas"] * is_said


def test_a_redis_that_is_not_there_is_one_line_without_its_password(run: Run) -> None:
    done = run(*SERVE, env={"BRIDGE_REDIS_URL": "redis://:secret@127.0.0.1:1/0"})
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("bridge: "))
    assert line.startswith("bridge: Redis at 127.0.0.1:1 cannot be used: ")
    assert "secret" not in done.stderr


def test_a_url_that_is_none_of_redis_is_one_line(run: Run) -> None:
    done = run(*SERVE, "--redis-url", "http://127.0.0.1")
    assert done.returncode == 2
    assert "bridge serve: --redis-url begins with redis://, rediss:// or unix://" in done.stderr


def test_without_the_extra_the_remedy_is_named(run: Run, directory: Path) -> None:
    (directory / "lacking").mkdir()
    (directory / "lacking" / "redis.py").write_text("raise ModuleNotFoundError('as if it were not installed')\n")
    environment = {"PYTHONPATH": "lacking", "BRIDGE_REDIS_URL": "redis://127.0.0.1"}
    done = run(*SERVE, env=environment)
    assert done.returncode == 1
    assert "--redis-url needs the package 'redis': pip install 'mcp-toolbridge[redis]'\n" in done.stderr
