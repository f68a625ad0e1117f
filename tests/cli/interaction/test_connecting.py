"""Commands lead their user to the page on which a gateway's caller gives a credential, and go on afterwards."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.pseudo_terminal import CTRL_D, Terminal
from tests.gateway.credentials.connected import ADA, Connected, connected
from tests.gateway.credentials.test_questions_for_credentials import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])


@pytest.fixture
def gateway() -> Iterator[Connected]:
    with connected() as gateway:
        yield gateway


def configured(gateway: Connected, directory: Path, era: str) -> str:
    """Write a configuration with the gateway; return its path."""
    entry = {"url": f"{gateway.origin}/mcp", "headers": {"Authorization": f"Bearer {ADA}"}, "protocol": era}
    file = directory / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"gateway": entry}}), encoding="utf-8")
    return str(file)


@ERAS
def test_a_call_waits_until_its_user_has_connected(
    gateway: Connected, directory: Path, environment: dict[str, str], era: str
) -> None:
    config = configured(gateway, directory, era)
    terminal = Terminal("call", config, "notes_show", cwd=directory, env=environment)
    terminal.until("the server 'gateway' asks you to visit a page:")
    shown = terminal.until("[y/N]:")
    assert "The server 'notes' (https://notes.example.com) needs you to give a key or token of yours" in shown
    assert "host: 127.0.0.1" in shown
    terminal.type("y\r")
    terminal.until("waiting until you have finished there")
    found = re.search(r"http://\S+/connect/link/\S+", shown)
    assert found is not None
    connect(gateway, found[0])
    terminal.until("ada has sesame")
    assert terminal.ended() == 0


@ERAS
def test_a_call_whose_user_does_not_want_to_connect_fails(
    gateway: Connected, directory: Path, environment: dict[str, str], era: str
) -> None:
    terminal = Terminal("call", configured(gateway, directory, era), "notes_show", cwd=directory, env=environment)
    terminal.until("[y/N]:")
    terminal.type(CTRL_D)
    terminal.until("notes")
    assert terminal.ended() == 1


@ERAS
def test_a_call_without_a_terminal_prints_the_link(gateway: Connected, directory: Path, run: Run, era: str) -> None:
    config = configured(gateway, directory, era)
    failed = run("call", config, "notes_show")
    assert failed.returncode == 1
    found = re.search(r"http://\S+/connect/link/[\w-]+", failed.stderr)
    assert found is not None, failed.stderr
    connect(gateway, found[0])
    done = run("call", config, "notes_show")
    assert (done.returncode, done.stdout) == (0, "ada has sesame\n")
