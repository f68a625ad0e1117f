"""Questions and answers survive the conversion to JSON and back, and malformed ones raise one kind of error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import WireError
from bridge.tools.content import File, Image, Text, block_from_json, block_to_json
from bridge.tools.questions import Elicitation, ElicitationAnswer, Roots, Sampling, SamplingAnswer, SamplingMessage
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.questions import answer_from_wire, answer_to_wire, question_from_wire, question_to_wire
from bridge.wire.tools import STRICT_META_KEY, result_from_wire, result_to_wire, tool_from_wire, tool_to_wire
from tests import wire_values as values

if TYPE_CHECKING:
    from bridge.tools.content import Content
    from bridge.tools.questions import Answer, Question


def sent(wire: Any) -> Any:
    """Return a value after conversion to JSON text and back."""
    return json.loads(json.dumps(wire, allow_nan=False))


# --- there and back --------------------------------------------------------------------------------------------------


@given(values.specifications)
def test_a_specification_survives_the_wire(specification: ToolSpecification) -> None:
    assert tool_from_wire(sent(tool_to_wire(specification))) == specification


@given(values.contents)
def test_a_block_of_content_survives_the_wire(block: Content) -> None:
    assert block_from_json(sent(block_to_json(block))) == block


@given(values.results)
def test_a_result_survives_the_wire(result: ToolExecutionResult) -> None:
    assert result_from_wire(sent(result_to_wire(result))) == result


@given(values.questions)
def test_a_question_survives_the_wire(question: Question) -> None:
    assert question_from_wire(sent(question_to_wire(question))) == question


@given(values.answered_questions)
def test_an_answer_survives_the_wire(answered: tuple[Question, Answer]) -> None:
    question, answer = answered
    assert answer_from_wire(question, sent(answer_to_wire(answer))) == answer


# --- what others wrote -----------------------------------------------------------------------------------------------


@given(values.spoiled(values.specifications.map(tool_to_wire)))
def test_a_spoiled_tool_is_refused_with_a_wire_error_or_survives(wire: Any) -> None:
    with suppress(WireError):
        written = tool_to_wire(tool_from_wire(wire))
        assert tool_to_wire(tool_from_wire(written)) == written


@given(values.spoiled(values.contents.map(block_to_json)))
def test_a_spoiled_block_is_refused_with_a_wire_error_or_survives(wire: Any) -> None:
    with suppress(WireError):
        read = block_from_json(wire)
        assert block_from_json(block_to_json(read)) == read


@given(values.spoiled(values.results.map(result_to_wire)))
def test_a_spoiled_result_is_refused_with_a_wire_error_or_survives(wire: Any) -> None:
    with suppress(WireError):
        read = result_from_wire(wire)
        assert result_from_wire(result_to_wire(read)) == read


@given(values.spoiled(values.questions.map(question_to_wire)))
def test_a_spoiled_question_is_refused_with_a_wire_error_or_survives(wire: Any) -> None:
    with suppress(WireError):
        # As for a tool: one that a question offers may leave out the type of its schema, which is then added.
        written = question_to_wire(question_from_wire(wire))
        assert question_to_wire(question_from_wire(written)) == written


@given(values.questions, st.data())
def test_a_spoiled_answer_is_refused_with_a_wire_error_or_survives(question: Question, data: st.DataObject) -> None:
    written = values.answered_questions.map(lambda answered: answer_to_wire(answered[1]))
    with suppress(WireError):
        read = answer_from_wire(question, data.draw(values.spoiled(written)))
        assert answer_from_wire(question, answer_to_wire(read)) == read


@pytest.mark.parametrize(
    ("wire", "complaint"),
    [
        ({"inputSchema": {"type": "object"}}, "a tool without a name"),
        ({"name": "", "inputSchema": {"type": "object"}}, "a tool without a name"),
        ({"name": "add"}, "the tool 'add' has no inputSchema"),
        ({"name": "add", "inputSchema": []}, "the tool 'add' has no inputSchema"),
        ({"name": "add", "inputSchema": {"type": "object"}, "title": 5}, "'title' must be str"),
        ([], "a tool is not an object"),
    ],
)
def test_a_tool_that_cannot_be_read_is_named(wire: Any, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        tool_from_wire(wire)


# --- the exact JSON --------------------------------------------------------------------------------------------------


def test_a_specification_is_written_as_the_protocol_spells_it() -> None:
    specification = ToolSpecification(
        name="add",
        title="Add",
        description="Adds.",
        parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
        output_schema={"type": "object"},
        annotations=ToolAnnotations(read_only=True, open_world=False),
        metadata={"team": "maths"},
        icons=({"src": "https://example.org/add.png"},),
        strict=True,
    )
    assert tool_to_wire(specification) == {
        "name": "add",
        "title": "Add",
        "description": "Adds.",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "icons": [{"src": "https://example.org/add.png"}],
        "_meta": {"team": "maths", STRICT_META_KEY: True},
    }


def test_a_schema_without_a_root_type_gets_the_one_that_the_protocol_asks_for() -> None:
    wire = tool_to_wire(ToolSpecification(name="add", parameters={"$ref": "#/$defs/sum"}))
    assert wire["inputSchema"] == {"type": "object", "$ref": "#/$defs/sum"}


def test_a_result_is_written_as_the_protocol_spells_it() -> None:
    result = ToolExecutionResult(
        (Text("3"), Image(b"\x00\x01"), File("file:///a.bin", b"\xff")), structured_content={"result": 3}
    )
    assert result_to_wire(result) == {
        "content": [
            {"type": "text", "text": "3"},
            {"type": "image", "data": "AAE=", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "/w=="}},
        ],
        "structuredContent": {"result": 3},
        "isError": False,
    }


def test_the_wire_shows_what_a_model_reads_where_a_budget_cut_it() -> None:
    result = ToolExecutionResult((Text("all of it"),), model_content=(Text("some of it"),))
    assert result_to_wire(result)["content"] == [{"type": "text", "text": "some of it"}]


def test_attributes_stay_on_this_side() -> None:
    assert "secret" not in json.dumps(result_to_wire(ToolExecutionResult((), attributes={"secret": 1})))


def test_a_lone_block_of_a_sampling_message_is_written_without_a_list() -> None:
    question = Sampling([SamplingMessage("user", (Text("Hello"),))], 100)
    assert question_to_wire(question) == {
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
            "maxTokens": 100,
        },
    }


def test_an_elicitation_without_a_mode_is_a_form() -> None:
    wire = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {"type": "object"}}}
    assert question_from_wire(wire) == Elicitation("Name?", {"type": "object"})


@pytest.mark.parametrize(
    ("question", "wire", "answer"),
    [
        (Elicitation("Name?", {}), {"action": "decline"}, ElicitationAnswer("decline")),
        (
            Sampling([], 10),
            {"role": "assistant", "content": [{"type": "text", "text": "Hi"}], "model": "m", "stopReason": "endTurn"},
            SamplingAnswer((Text("Hi"),), "m", "assistant", "endTurn"),
        ),
        (Roots(), {"roots": []}, ()),
    ],
)
def test_an_answer_is_read_as_its_question_wants_it(question: Question, wire: Any, answer: Answer) -> None:
    assert answer_from_wire(question, wire) == answer


def test_an_answer_to_another_question_is_refused() -> None:
    with pytest.raises(WireError, match="a malformed answer"):
        answer_from_wire(Roots(), {"action": "accept"})
