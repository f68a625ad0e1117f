"""Tasks as MCP's JSON, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from bridge.errors import WireError
from bridge.tools import Task
from bridge.wire.tasks import created_task_to_wire, is_created_task, task_from_wire, task_to_wire, written_task
from tests.wire_values import json_objects, json_values, texts

milliseconds = st.integers(10, 60_000).map(lambda each: each / 1000)
common: dict[str, Any] = {
    "id": st.text(min_size=1, max_size=8),
    "status_message": st.none() | texts,
    "created_at": st.integers(0, 2_000_000_000_000).map(lambda each: each / 1000),
    "updated_at": st.integers(0, 2_000_000_000_000).map(lambda each: each / 1000),
    "ttl_seconds": st.none() | milliseconds,
    "poll_interval_seconds": milliseconds,
}
outcomes = json_objects.map(to_json)
tasks = st.one_of(
    st.builds(Task, **common, status=st.sampled_from(("working", "cancelled"))),
    st.builds(
        Task, **common, status=st.just("input_required"), questions=st.dictionaries(texts, json_objects, max_size=2)
    ),
    st.builds(Task, **common, status=st.sampled_from(("completed", "failed")), outcome=outcomes),
)


@given(task=tasks)
def test_a_task_is_the_same_after_its_journey(task: Task) -> None:
    wire = task_to_wire(task)
    assert task_from_wire(wire) == task
    assert not is_created_task(wire)
    assert is_created_task(created_task_to_wire(task))


@given(task=tasks)
def test_a_task_is_written_as_it_is_converted(task: Task) -> None:
    assert {"resultType": "complete", **from_json(written_task(task).written())} == task_to_wire(task)


def test_a_task_is_written_without_reading_its_outcome() -> None:
    task = Task(
        id="x", status="completed", outcome=b"?", created_at=0, updated_at=0, ttl_seconds=None, poll_interval_seconds=1
    )
    assert written_task(task).written().endswith(b',"result":?}')


@given(
    wire=json_objects, changes=st.dictionaries(st.sampled_from(("taskId", "status", "result", "ttlMs")), json_values)
)
def test_what_is_no_task_is_a_clear_error(wire: dict[str, Any], changes: dict[str, Any]) -> None:
    try:
        task = task_from_wire({**wire, "taskId": "x", "status": "completed", "result": {}, **changes})
    except WireError:
        return
    assert task.id


@pytest.mark.parametrize(("given_ms", "seconds"), [(1, 0.01), (10**9, 60.0), ("soon", 1.0), (None, 1.0), (True, 1.0)])
def test_the_interval_of_polling_is_bounded(given_ms: Any, seconds: float) -> None:
    wire = {"taskId": "x", "status": "working", "pollIntervalMs": given_ms}
    assert task_from_wire(wire).poll_interval_seconds == seconds
