"""Tools and their wrappers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import DefinitionError
from bridge.tools.content import Image, Text
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import (
    ReturnBehavior,
    Tool,
    ToolExecution,
    ToolExecutionRequest,
    ToolExecutionResult,
    ToolPolicy,
)

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext


class Echo:
    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        return ToolExecutionResult.of_text(request.name)


def test_specifications_are_compared_by_value() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    first = ToolSpecification(name="add", parameters=schema, metadata={"k": [1]})
    second = ToolSpecification(name="add", parameters={**schema}, metadata={"k": [1]})
    assert first == second
    assert len({first, second}) == 1
    assert first != replace(second, description="Add.")


def test_a_specification_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ToolSpecification(name="add").name = "sub"  # type: ignore[misc]  # what is tested


def test_a_specification_without_parameters_takes_an_empty_object() -> None:
    assert ToolSpecification(name="now").parameters == {"type": "object", "properties": {}}


def test_a_schema_is_carried_as_it_was_given() -> None:
    schema = {"type": "object", "$defs": {"a": {"$anchor": "x"}}, "unevaluatedProperties": False, "x-own": [1]}
    assert ToolSpecification(name="add", parameters=schema).parameters is schema


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(DefinitionError, match="name must be text"):
        ToolSpecification(name=name)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("kind", ["array", ["object", "null"], None])
def test_parameters_that_are_no_object_are_refused(kind: object) -> None:
    with pytest.raises(DefinitionError, match="'add' must be a JSON Schema of type 'object'"):
        ToolSpecification(name="add", parameters={"type": kind})


def test_a_tool_by_hand_is_a_specification_and_an_executor() -> None:
    tool = Tool(ToolSpecification(name="echo"), Echo())
    assert tool.name == "echo"
    assert tool.return_behavior is ReturnBehavior.TO_LLM
    assert tool.policy == ToolPolicy()
    assert tool.interactive
    assert tool.source == "a Tool made by hand"


def test_where_a_tool_comes_from_does_not_make_it_another() -> None:
    tool = Tool(ToolSpecification(name="echo"), Echo())
    assert replace(tool, source="server 'github'") == tool


@pytest.mark.parametrize("seconds", [0, -1, 0.0, float("nan"), "5", True])
def test_a_time_limit_that_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(DefinitionError, match=f"^timeout_seconds must be .* above 0, or None, not {seconds!r}$"):
        ToolPolicy(timeout_seconds=seconds)


@pytest.mark.parametrize("chars", [0, -1, 1.5, "5", True])
def test_an_output_budget_that_leaves_nothing_to_read_is_refused(chars: Any) -> None:
    with pytest.raises(DefinitionError, match=f"^max_output_chars must be .* at least 1, or None, not {chars!r}$"):
        ToolPolicy(max_output_chars=chars)


def test_limits_are_taken_as_they_are_given() -> None:
    policy = ToolPolicy(timeout_seconds=0.5, max_output_chars=1)
    assert (policy.timeout_seconds, policy.max_output_chars) == (0.5, 1)


def test_an_error_is_a_result_with_one_text() -> None:
    assert ToolExecutionResult.error("no") == ToolExecutionResult((Text("no"),), is_error=True)


def test_a_model_reads_the_whole_unless_a_budget_cut_it() -> None:
    whole = ToolExecutionResult((Text("a"), Image(b"x"), Text("b")))
    assert (whole.text, whole.model_text) == ("a\nb", "a\nb")
    cut = replace(whole, model_content=(Text("a…"),))
    assert (cut.text, cut.model_text) == ("a\nb", "a…")


def test_executions_are_equal_whatever_was_raised_on_this_side() -> None:
    def execution(error: Exception | None) -> ToolExecution:
        return ToolExecution(
            request=ToolExecutionRequest("add"),
            result=ToolExecutionResult.error("no"),
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            duration_seconds=0.5,
            error=error,
        )

    assert execution(ValueError("no")) == execution(None)
