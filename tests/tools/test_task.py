"""Settings of tools whose calls are tasks."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError, InvocationContext, TaskPolicy, tool, tools_from


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        (False, None),
        (True, TaskPolicy()),
        ("required", TaskPolicy(required=True)),
        (TaskPolicy(ttl_seconds=60), TaskPolicy(ttl_seconds=60)),
    ],
    ids=["no", "yes", "required", "a policy"],
)
def test_a_tool_declares_its_tasks(given: Any, policy: TaskPolicy | None) -> None:
    @tool(task=given)
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    (made,) = tools_from(add)
    assert made.task == policy


@pytest.mark.parametrize("given", ["yes", 1, None], ids=["text", "a number", "nothing"])
def test_another_setting_is_refused(given: Any) -> None:
    with pytest.raises(DefinitionError, match="task must be True, False, 'required' or a TaskPolicy"):
        tool(task=given)


@pytest.mark.parametrize(
    "settings",
    [
        {"ttl_seconds": 0},
        {"ttl_seconds": float("inf")},
        {"poll_interval_seconds": None},
        {"required": "yes"},
        {"starts_at_once": 1},
    ],
    ids=["no time", "endless", "no interval", "text", "a number"],
)
def test_a_policy_checks_its_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=next(iter(settings))):
        TaskPolicy(**settings)


@pytest.mark.anyio
async def test_starting_a_task_does_nothing_without_a_client_that_supports_tasks() -> None:
    await InvocationContext().start_task()
