"""Detached calls, and the command that shows their tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.client.conftest import RemoteServer
from tests.client.tasks.test_remote_tasks import SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with tasks."""
    server = RemoteServer(SERVED)
    anyio.run(server.start)
    yield server.url
    server.kill()


def test_a_call_waits_for_the_task_of_its_server(run: Run, url: str) -> None:
    done = run("call", url, "add", "a=1", "b=2")
    assert (done.returncode, done.stdout) == (0, "3\n")


def test_a_detached_call_is_waited_for_by_another_command(run: Run, url: str) -> None:
    started = run("call", url, "add", "a=1", "b=2", "--detach")
    task = started.stdout.strip()
    assert task.startswith("task:")
    waited = run("task", url, task, "--wait")
    assert (waited.returncode, waited.stdout, waited.stderr) == (0, "3\n", "")
    assert run("task", url, task).stdout == "completed\n"
    state = json.loads(run("task", url, task, "--json").stdout)
    assert (state["status"], state["result"]["structuredContent"]) == ("completed", {"result": 3})
    result = json.loads(run("task", url, task, "--wait", "--json").stdout)
    assert result["structuredContent"] == {"result": 3}


def test_a_detached_call_is_cancelled_and_shows_what_it_asks(run: Run, url: str) -> None:
    task = run("call", url, "greet", "--detach").stdout.strip()
    shown = run("task", url, task).stdout
    assert shown == "input_required\nit asks 'first': Your first name?\n"
    assert run("task", url, task, "--cancel").stdout.split("\n")[0] in {"cancelled", "working"}
    waited = run("task", url, task, "--wait")
    assert waited.returncode == 1
    assert "the task was cancelled" in waited.stderr


def test_a_failed_tool_ends_the_wait_with_its_message(run: Run, url: str) -> None:
    task = run("call", url, "fail", "--detach").stdout.strip()
    waited = run("task", url, task, "--wait")
    assert (waited.returncode, waited.stdout) == (1, "")
    assert "it failed" in waited.stderr
    shown = run("task", url, task)
    assert (shown.returncode, shown.stdout) == (0, "failed: it failed\n")


def test_a_call_that_is_answered_directly_writes_its_result(run: Run, url: str) -> None:
    done = run("call", url, "add_directly", "a=1", "b=2", "--detach")
    assert (done.returncode, done.stdout) == (0, "3\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{url}",), "one TASK is expected, not 0"),
        (("{url}", "nonsense"), "is not the text of a task"),
        (("{url}", "task:elsewhere/add/x"), "the task is one of the server 'elsewhere', which is not here"),
        (("{url}", "task:x/add/x", "--wait", "--cancel"), "give --wait or --cancel, not both"),
        (("calculator.py", "task:x/add/x"), "a Python target has no server with tasks"),
    ],
)
def test_wrong_usage_is_explained(run: Run, url: str, arguments: tuple[str, ...], message: str) -> None:
    done = run("task", *(each.format(url=url) for each in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_task_that_the_server_does_not_know_is_an_error(run: Run, url: str) -> None:
    name = run("call", url, "add", "a=1", "b=2", "--detach").stdout.split("/")[0]
    done = run("task", url, f"{name}/add/unknown")
    assert done.returncode == 1
    assert "there is no task 'unknown'" in done.stderr


def test_a_python_target_has_no_task_that_outlives_the_command(run: Run) -> None:
    done = run("call", "calculator.py", "add", "a=1", "--detach")
    assert done.returncode == 2
    assert "--detach needs a server" in done.stderr
