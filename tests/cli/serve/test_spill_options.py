"""Options of large results, by a real ``bridge serve``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
from redis import Redis

from tests import forks
from tests.redis_server import redis_server
from tests.server import http_server as http
from tests.server.auth.guarded import Modern

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

DEADLINE_SECONDS = 40
SERVE = ["serve", "calculator.py", "--transport", "http", "--port", "0"]
LONG = http.call("shout", {"text": "a", "times": 1000})


def uri_of(answer: dict[str, Any]) -> str:
    (uri,) = [block["uri"] for block in answer["result"]["content"] if block["type"] == "resource_link"]
    assert isinstance(uri, str)
    return uri


def read(peer: Modern, uri: str) -> dict[str, Any]:
    return peer.ask(http.request("resources/read", {"uri": uri}))


def peer_of(client: httpx.Client, url: str) -> Modern:
    return Modern(client, url.removesuffix("/mcp"), {})


def test_results_over_the_limit_are_kept_by_option_and_by_environment(start: Start) -> None:
    for more, env in ((["--spill-chars", "500"], {}), ([], {"BRIDGE_SPILL_CHARS": "500"})):
        with start(*SERVE, *more, env=env) as process, httpx.Client(timeout=DEADLINE_SECONDS) as client:
            peer = peer_of(client, process.url())
            (contents,) = read(peer, uri_of(peer.ask(LONG)))["result"]["contents"]
            assert contents["text"] == "A!" * 1000


def test_measuring_is_shown_by_status(start: Start) -> None:
    with start(*SERVE, "--spill-chars", "500", "--spill-mode", "measure") as process, httpx.Client() as client:
        url = process.url()
        assert len(peer_of(client, url).ask(LONG)["result"]["content"][0]["text"]) == 2000
        status = client.get(url.replace("/mcp", "/status")).json()
    assert status["results"]["mode"] == "measure"
    assert status["results"]["tools"]["shout"]["kept"] == 1
    assert status["results"]["tools"]["shout"]["estimatedTokens"] == 500
    assert status["estimatedTokensSaved"]["spill"] > 0
    assert status["definitions"]["servers"].keys() == {""}
    assert status["definitions"]["estimatedTokens"] == status["definitions"]["servers"][""] > 100


def test_a_server_has_a_limit_in_the_configuration_and_its_results_outlive_the_process(
    start: Start, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    entry = forks.entry("-m", "bridge", "serve", "calculator.py", cwd=str(work), spillChars=500)
    (work / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry}}))
    arguments = ["serve", "mcp.json", "--transport", "http", "--port", "0", "--spill-store", "results.db"]
    with start(*arguments) as process, httpx.Client(timeout=DEADLINE_SECONDS) as client:
        uri = uri_of(peer_of(client, process.url()).ask(LONG))
    with start(*arguments) as process, httpx.Client(timeout=DEADLINE_SECONDS) as client:
        (contents,) = read(peer_of(client, process.url()), uri)["result"]["contents"]
    assert contents["text"] == "A!" * 1000


def test_workers_need_a_place_that_they_share(run: Run) -> None:
    finished = run(*SERVE, "--workers", "2", "--spill-chars", "500")
    assert finished.returncode == 2
    assert "--spill-chars with several --workers needs --spill-store or --redis-url" in " ".join(
        finished.stderr.split()
    )


def test_replicas_share_results_by_redis_until_a_session_ends(start: Start, tmp_path: Path) -> None:
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as redis:
        arguments = [
            *SERVE,
            "--spill-chars",
            "500",
            "--redis-url",
            redis.url,
            "--name",
            "calc",
            "--state-keys",
            "k" * 32,
        ]
        with start(*arguments) as one, start(*arguments) as two, httpx.Client(timeout=DEADLINE_SECONDS) as client:
            urls = one.url(), two.url()
            uri = uri_of(peer_of(client, urls[0]).ask(LONG))
            assert read(peer_of(client, urls[1]), uri)["result"]["contents"][0]["text"] == "A!" * 1000
            headers = http.open_session(client, urls[0])

            def ask(url: str, message: dict[str, Any]) -> dict[str, Any]:
                return http.answer(client.post(url, json=message, headers=headers))

            uri = uri_of(ask(urls[0], LONG))
            reading = http.request("resources/read", {"uri": uri}, 2)
            assert ask(urls[1], reading)["result"]["contents"][0]["text"] == "A!" * 1000
            assert "error" in read(peer_of(client, urls[1]), uri)  # without the session
            client.delete(urls[1], headers=headers).raise_for_status()
            with Redis.from_url(redis.url) as stored:
                kept = [key.decode().rpartition(":")[2] for key in stored.keys("bridge:{calc}:results:result:*")]
            assert len(kept) == 1  # the one of no session
            assert not uri.endswith(kept[0])
