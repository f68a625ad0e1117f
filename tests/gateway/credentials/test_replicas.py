"""Two replicas of a gateway over Redis: each caller is seen alone, wherever it calls, logs in and disconnects."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests import processes
from tests.client.auth import authority as authorities
from tests.gateway.credentials.connected import ADA, BOB, Reached
from tests.gateway.credentials.seeing import seeing
from tests.gateway.credentials.test_questions_for_credentials import again, asked_url, modern_call
from tests.gateway.credentials.test_served_gateway import log_in, text_of
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

CALLS = 1000
DEADLINE_SECONDS = 60
KEYS = {"ada": ADA, "bob": BOB}


@contextmanager
def replica(folder: Path, redis_url: str) -> Iterator[Reached]:
    """Run a replica in this block."""
    serve = ("serve", str(folder / "mcp.json"), "--transport", "http", "--port", "0", "--name", "gateway")
    options = ("--api-keys", str(folder / "keys"), "--redis-url", redis_url)
    with processes.serving("-m", "bridge", *serve, *options, environment={"BRIDGE_STATE_KEYS": "k" * 40}) as process:
        gateway = Reached(process.origin)
        yield gateway
        gateway.close()


def token_of(text: str, nonce: int) -> str:
    """Return the token that the server has seen in a call."""
    authorization, seen = text.rsplit(" ", 1)
    assert seen == str(nonce), "the answer to another call"
    return authorization


def test_two_callers_of_two_replicas_are_each_seen_alone(tmp_path: Path) -> None:
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(tmp_path))
        server, authority = stack.enter_context(seeing()), stack.enter_context(authorities.running())
        server.authority, server.accepted = authority.origin, set()
        authority.expires_in = 2
        config = {"mcpServers": {"notes": {"url": server.url, "auth": {"type": "login", "per": "caller"}}}}
        (tmp_path / "mcp.json").write_text(json.dumps(config))
        (tmp_path / "keys").write_text(f"ada {ADA}\nbob {BOB}\n")
        (tmp_path / "keys").chmod(0o600)
        first = stack.enter_context(ExitStack())
        replicas = [
            first.enter_context(replica(tmp_path, redis.url)),
            stack.enter_context(replica(tmp_path, redis.url)),
        ]
        programs = {
            (name, each.origin): stack.enter_context(each.program(key))
            for name, key in KEYS.items()
            for each in replicas
        }
        for number, (name, key) in enumerate(KEYS.items()):
            here, other = replicas[number], replicas[1 - number]
            asked = modern_call(programs[name, here.origin], "whoami")
            url = asked_url(asked).replace(here.origin, other.origin)
            log_in(other, server, authority, url, key)
            assert text_of(modern_call(programs[name, here.origin], "whoami", **again(asked))).startswith("Bearer ")
        server.accepted = None  # also of tokens that are refreshed from now on

        def seen(number: int) -> tuple[str, str]:
            (name, origin) = [*programs][number % len(programs)]
            answer = modern_call(programs[name, origin], "whoami", arguments={"nonce": number})
            return name, token_of(text_of(answer), number)

        tokens: dict[str, set[str]] = {name: set() for name in KEYS}
        with ThreadPoolExecutor(8) as threads:
            ends_at, rounds = time.monotonic() + DEADLINE_SECONDS, 0
            # A refresh token is valid once, so that no call would succeed if two replicas had refreshed it.
            while not rounds or authority.grants.count("refresh_token") < 2:
                assert time.monotonic() < ends_at, "no token is refreshed"
                for name, token in threads.map(seen, range(rounds * CALLS, (rounds + 1) * CALLS)):
                    tokens[name].add(token)
                rounds += 1
        assert not tokens["ada"] & tokens["bob"], "a caller was seen as another"
        assert tokens["ada"] | tokens["bob"] <= {f"Bearer {token}" for token in authority.issued}
        first.close()
        with replica(tmp_path, redis.url) as restarted, ExitStack() as later:
            again_programs = {name: later.enter_context(restarted.program(key)) for name, key in KEYS.items()}
            for name, program in again_programs.items():
                token = token_of(text_of(modern_call(program, "whoami", arguments={"nonce": 1})), 1)
                assert token not in tokens["bob" if name == "ada" else "ada"]
            browser = restarted.visitor()
            browser.open("/connect")
            browser.sign_in(ADA)
            browser.send("/disconnect")
            ends_at = time.monotonic() + DEADLINE_SECONDS
            while "result" in (answer := modern_call(programs["ada", replicas[1].origin], "whoami")):
                if "inputRequests" in answer["result"]:
                    break
                assert time.monotonic() < ends_at, "a replica uses a credential that was forgotten"
            assert text_of(modern_call(programs["bob", replicas[1].origin], "whoami")).startswith("Bearer ")
            assert asked_url(modern_call(again_programs["ada"], "whoami"))
            with httpx.Client(timeout=20) as anonymous:
                assert anonymous.post(f"{restarted.origin}/mcp", json={}).status_code == 401
