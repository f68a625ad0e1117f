from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.server.http_server import call, open_session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Start

SLOW = """
import threading
from bridge import tool

def compute() -> None:
    threading.Event().wait(1)

@tool
async def slow() -> str:
    compute()
    return "done"

@tool
def threaded() -> str:
    compute()
    return "done"
"""
WARNING = "'slow' blocks the event loop, at slow.py:6, for more than 250 ms"


@pytest.mark.parametrize("options", [("--log-level", "debug"), ("--reload",)])
def test_a_coroutine_function_that_blocks_the_event_loop_is_named(
    start: Start, directory: Path, options: tuple[str, ...]
) -> None:
    (directory / "slow.py").write_text(SLOW, encoding="utf-8")
    with start("serve", "slow.py", "--transport", "http", "--port", "0", *options) as process:
        url = process.url()
        with httpx.Client(timeout=20) as client:
            headers = open_session(client, url)
            client.post(url, json=call("threaded"), headers=headers)
            client.post(url, json=call("slow"), headers=headers)
        process.line_with(WARNING)
    assert not [line for line in process.seen if "'threaded' blocks" in line]
    assert len([line for line in process.seen if "blocks the event loop" in line]) == 1


def test_nothing_is_watched_otherwise(start: Start, directory: Path) -> None:
    (directory / "slow.py").write_text(SLOW, encoding="utf-8")
    with start("serve", "slow.py", "--transport", "http", "--port", "0") as process:
        url = process.url()
        with httpx.Client(timeout=20) as client:
            client.post(url, json=call("slow"), headers=open_session(client, url))
    assert not [line for line in process.seen if "blocks the event loop" in line]
