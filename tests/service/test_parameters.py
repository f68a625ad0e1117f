from __future__ import annotations

from bridge.service.chat_model import ChatRequest, ChatRequestParameters, ToolChoice, ToolChoiceMode
from bridge.service.memory.serialization import parameters_from_json, parameters_to_json

ALL = ChatRequestParameters(
    tool_choice=ToolChoice.of("add"),
    model_name="large",
    temperature=0.0,
    top_p=0.9,
    max_output_tokens=100,
    stop_sequences=("END",),
    extra={"seed": 1},
)


def test_what_is_said_is_applied() -> None:
    assert ALL.applied_to(ChatRequest(messages=())) == ChatRequest(
        messages=(),
        tool_choice=ToolChoice(ToolChoiceMode.NAMED, "add"),
        model_name="large",
        temperature=0.0,
        top_p=0.9,
        max_output_tokens=100,
        stop_sequences=("END",),
        extra={"seed": 1},
    )


def test_what_is_unsaid_changes_nothing() -> None:
    request = ChatRequest(messages=(), temperature=0.3, extra={"a": 1})
    assert ChatRequestParameters().applied_to(request) == request


def test_parameters_stand_over_others() -> None:
    usual = ChatRequestParameters(model_name="small", temperature=0.5, extra={"seed": 2, "user": "ada"})
    assert ALL.over(usual).model_name == "large"
    assert ALL.over(usual).temperature == 0.0
    assert ALL.over(usual).extra == {"seed": 1, "user": "ada"}
    assert ChatRequestParameters().over(usual) == usual


def test_parameters_go_through_json() -> None:
    for parameters in (ALL, ChatRequestParameters()):
        assert parameters_from_json(parameters_to_json(parameters)) == parameters
