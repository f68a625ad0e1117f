"""``bridge top``, as a process beside a gateway."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests import forks
from tests.admin.board import ADA_KEY, OPERATOR_KEY, board
from tests.cli.pseudo_terminal import Terminal
from tests.processes import ROOT
from tests.server.auth.guarded import talking
from tests.server.http_server import request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

    from tests.admin.board import Board

DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    # As in a shell in which the operator uses `bridge top` as well.
    with board(tmp_path_factory.mktemp("gateway"), environment={"BRIDGE_ADMIN_KEY": OPERATOR_KEY}) as running:
        yield running


def top(*arguments: str, key: str = OPERATOR_KEY) -> CompletedProcess[str]:
    environment = os.environ | {"BRIDGE_ADMIN_KEY": key}
    return forks.run(["-m", "bridge", "top", *arguments], cwd=ROOT, env=environment, timeout=DEADLINE_SECONDS)


def test_the_tables_are_written_once_where_there_is_no_terminal(gateway: Board) -> None:
    done = top(gateway.admin_origin)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("mcp-jobs: ready, up ")
    row = next(line for line in lines if line.startswith("tools "))
    assert row.split()[1] == "ready"
    assert "command not found" in next(line for line in lines if line.startswith("gone "))


def test_limits_in_use_are_shown_in_units(gateway: Board) -> None:
    with talking("modern", gateway.origin, ADA_KEY) as ada:
        assert "result" in ada.ask(request("tools/list"))
    lines = top(gateway.admin_origin).stdout.splitlines()
    row = next(line for line in lines if line.startswith("ada ") and "MiB" in line)
    assert row.split() == [
        "ada",
        "0",
        "of",
        "20",
        "0%",
        "of",
        "1000",
        "in",
        "60",
        "s",
        "0%",
        "of",
        "50",
        "MiB",
        "in",
        "1",
        "h",
    ]


def test_the_whole_state_is_json(gateway: Board) -> None:
    done = top(gateway.admin_origin + "/admin/", "--json")
    assert json.loads(done.stdout)["servers"][0]["name"] == "tools"


def test_actions_are_done_and_those_that_are_not_say_why(gateway: Board) -> None:
    assert top(gateway.admin_origin, "--disable", "tools_add").returncode == 0
    assert {each["name"]: each["enabled"] for each in gateway.state()["tools"]}["tools_add"] is False
    assert top(gateway.admin_origin, "--enable", "tools_add").returncode == 0
    assert gateway.state()["recent"][0]["caller"] == "olga"  # and not the name of a key of the environment
    failed = top(gateway.admin_origin, "--restart", "nobody")
    assert (failed.returncode, "restart was not done: there is no server 'nobody'" in failed.stderr) == (1, True)
    assert top(gateway.admin_origin, "--reload").returncode == 0
    assert top(gateway.admin_origin, "--reload", "--drain").returncode == 2


def test_on_a_terminal_it_shows_what_happens_until_ctrl_c(gateway: Board) -> None:
    environment = {"BRIDGE_ADMIN_KEY": OPERATOR_KEY}
    terminal = Terminal("top", gateway.admin_origin, "--interval", "0.2", cwd=ROOT, env=environment)
    terminal.until("SERVER")
    assert gateway.act("reload").json() == {"done": True}
    terminal.until("reload")
    terminal.interrupt()
    assert terminal.ended() == 130


def test_a_wrong_key_and_a_wrong_port_are_named(gateway: Board) -> None:
    wrong = top(gateway.admin_origin, key="wrong-wrong-wrong-wrong")
    assert (wrong.returncode, "refuses the key in BRIDGE_ADMIN_KEY" in wrong.stderr) == (1, True)
    nothing = top("http://127.0.0.1:9")
    assert (nothing.returncode, "is this the admin port?" in nothing.stderr) == (1, True)
    elsewhere = top(gateway.admin_origin + "/elsewhere")
    assert (elsewhere.returncode, "give the URL of the admin port" in elsewhere.stderr) == (1, True)
    file = top("tools.py")
    assert (file.returncode, "'tools.py' is not the URL of an admin port" in file.stderr) == (2, True)
    missing = top(gateway.admin_origin, key="")
    assert (missing.returncode, "set the key of an operator in BRIDGE_ADMIN_KEY" in missing.stderr) == (2, True)
