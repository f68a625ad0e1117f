from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, assert_type

import anyio
import anyio.to_thread
import pytest

from bridge.errors import ToolError
from bridge.tools.caller import Caller, InvocationParameters
from bridge.tools.channel import LOG_LEVELS, Channel, LocalChannel
from bridge.tools.content import Text
from bridge.tools.context import InvocationContext
from bridge.tools.questions import (
    Elicitation,
    ElicitationAnswer,
    InputRequired,
    Root,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    UrlElicitation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.questions import Answer, Question

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CONVERSATION = (SamplingMessage("user", (Text("Hello"),)),)
ROOTS = (Root("file:///home", "home"),)
SPOKEN = SamplingAnswer((Text("Hi"),), "a-model")
FILLED = ElicitationAnswer("accept", {"city": "Bonn"})


class Recorder(Channel):
    """A channel that answers at once, and records its messages."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append((progress, total, message))

    async def log(self, level: Any, data: Any, logger: str | None) -> None:
        self.told.append((level, data, logger))

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        self.told.append(dict(questions))
        await anyio.lowlevel.checkpoint()
        return {key: _answer(question) for key, question in questions.items()}


def _answer(question: Question) -> Answer:
    if isinstance(question, Sampling):
        return SPOKEN
    return ROOTS if isinstance(question, Roots) else FILLED


async def test_a_context_of_a_program_says_nothing_of_a_caller() -> None:
    context = InvocationContext()
    assert (context.memory_id, context.caller, context.deadline) == (None, None, None)
    assert (dict(context.headers), dict(context.client_capabilities), context.round) == ({}, {}, 0)
    assert context.parameters == InvocationParameters()
    assert not context.cancelled


async def test_parameters_become_invocation_parameters_and_stay_the_ones_that_were_given() -> None:
    given = InvocationParameters(user="a")
    assert InvocationContext(parameters=given).parameters is given
    made = InvocationContext(parameters={"user": "a"}).parameters
    assert isinstance(made, InvocationParameters)
    assert made == {"user": "a"}


async def test_two_contexts_share_no_parameters() -> None:
    InvocationContext().parameters["user"] = "a"
    assert InvocationContext().parameters == {}


async def test_an_invocation_has_one_identity() -> None:
    context = InvocationContext()
    assert context.invocation_id == context.invocation_id != InvocationContext().invocation_id
    assert context.fork().invocation_id == context.invocation_id
    assert InvocationContext(invocation_id="given").invocation_id == "given"


async def test_cancelling_one_call_does_not_cancel_the_others() -> None:
    context = InvocationContext(memory_id="a", caller=Caller("b"), headers={"c": "d"}, deadline=5.0, round=2)
    first, second = context.fork(), context.fork()
    first.cancel()
    assert (first.cancelled, second.cancelled, context.cancelled) == (True, False, False)
    for name in ("memory_id", "caller", "headers", "deadline", "round", "parameters", "client_capabilities"):
        assert getattr(first, name) is getattr(context, name)


async def test_progress_and_log_go_to_the_channel() -> None:
    channel = Recorder()
    context = InvocationContext(channel=channel)
    await context.progress(1)
    await context.progress(0.5, 2, "half")
    await context.log("notice", {"a": 1})
    await context.log("error", "b", "part")
    assert channel.told == [(1, None, None), (0.5, 2, "half"), ("notice", {"a": 1}, None), ("error", "b", "part")]


async def test_single_questions_have_a_key_by_position_or_by_name() -> None:
    channel = Recorder()
    context = InvocationContext(channel=channel)
    assert await context.elicit("Where?", FORM) == FILLED
    assert await context.sample(CONVERSATION, max_tokens=10, temperature=0.5) == SPOKEN
    assert await context.roots(key="folders") == ROOTS
    assert await context.roots() == ROOTS
    assert channel.told == [
        {"question-1": Elicitation("Where?", FORM)},
        {"question-2": Sampling(CONVERSATION, 10, temperature=0.5)},
        {"folders": Roots()},
        {"question-4": Roots()},
    ]


async def test_several_questions_are_asked_at_once() -> None:
    channel = Recorder()
    questions: dict[str, Question] = {
        "form": Elicitation("Where?", FORM),
        "page": UrlElicitation("Pay", "https://a", "1"),
        "roots": Roots(),
    }
    assert await InvocationContext(channel=channel).ask(questions) == {"form": FILLED, "page": FILLED, "roots": ROOTS}
    assert channel.told == [questions]


@dataclass
class Place:
    city: str


async def test_a_form_can_be_a_type() -> None:
    channel = Recorder()
    await InvocationContext(channel=channel).elicit("Where?", Place)
    [question] = channel.told[0].values()
    assert question.schema["properties"] == FORM["properties"]
    assert question.schema["required"] == ["city"]


@pytest.mark.parametrize(("action", "accepted"), [("accept", True), ("decline", False), ("cancel", False)])
async def test_an_answer_tells_whether_it_is_a_yes(action: Any, accepted: bool) -> None:
    assert ElicitationAnswer(action).accepted is accepted


async def test_a_function_in_a_thread_has_the_same_ways_back() -> None:
    channel = Recorder()
    context = InvocationContext(channel=channel)

    def work() -> tuple[Any, ...]:
        blocking = context.blocking
        blocking.progress(1, 2, "half")
        blocking.log("info", "a", "part")
        return (
            blocking.ask({"roots": Roots()}),
            blocking.elicit("Where?", FORM, key="where"),
            blocking.sample(CONVERSATION, max_tokens=10, system_prompt="Be kind."),
            blocking.roots(),
        )

    assert await anyio.to_thread.run_sync(work) == ({"roots": ROOTS}, FILLED, SPOKEN, ROOTS)
    assert channel.told == [
        (1, 2, "half"),
        ("info", "a", "part"),
        {"roots": Roots()},
        {"where": Elicitation("Where?", FORM)},
        {"question-2": Sampling(CONVERSATION, 10, system_prompt="Be kind.")},
        {"question-3": Roots()},
    ]


async def test_the_ways_back_of_a_thread_and_of_a_task_are_the_same() -> None:
    ways = {"progress", "log", "ask", "elicit", "sample", "roots", "close_stream", "start_task", "session", "notify"}
    assert ways <= {name for name in dir(InvocationContext) if not name.startswith("_")}
    assert ways == {name for name in dir(InvocationContext().blocking) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("level", "severity"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.INFO),
        ("notice", logging.INFO),
        ("warning", logging.WARNING),
        ("error", logging.ERROR),
        ("critical", logging.CRITICAL),
        ("alert", logging.CRITICAL),
        ("emergency", logging.CRITICAL),
    ],
)
async def test_without_a_caller_to_tell_what_is_logged_is_logged_here(
    level: Any, severity: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await InvocationContext().log(level, "100%s {}")
    await InvocationContext().log(level, {"a": 1}, "part")
    assert caplog.record_tuples == [("bridge.tools", severity, "100%s {}"), ("part", severity, "{'a': 1}")]


async def test_the_levels_are_those_of_syslog_least_severe_first() -> None:
    assert LOG_LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


async def test_without_a_caller_progress_is_dropped_and_questions_are_refused() -> None:
    context = InvocationContext()
    await context.progress(1)
    with pytest.raises(ToolError, match="cannot be asked"):
        await context.roots()


async def test_what_waits_for_answers_is_no_exception_and_says_for_which() -> None:
    waiting = InputRequired({"a": Roots(), "b": Roots()})
    assert not isinstance(waiting, Exception)
    assert str(waiting) == "waiting for answers to a, b"


async def test_a_callers_claims_are_not_shown() -> None:
    assert "secret" not in repr(Caller("a", frozenset({"read"}), {"token": "secret"}))


class Size(Enum):
    SMALL = "small"


class Recording(LocalChannel):
    """Channel of a program that answers by itself."""

    def __init__(self, **content: object) -> None:
        self.content = content

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        return {key: ElicitationAnswer("accept", self.content) for key in questions}


async def test_answers_are_typed_by_what_was_asked_for() -> None:
    context = InvocationContext(channel=Recording(value="small"))
    size = await context.elicit("Size?", Size)
    assert_type(size.data, Size | None)
    assert size.data is Size.SMALL
    text = await context.elicit("Size?", str)
    assert_type(text.data, str | None)
    assert text.data == "small"
    form = await context.elicit("Size?", {"type": "object", "properties": {"value": {"type": "string"}}})
    assert_type(form.data, dict[str, Any] | None)
    assert form.data == {"value": "small"}


async def test_answers_of_programs_are_checked_too() -> None:
    answer = await InvocationContext(channel=Recording(value="true")).elicit("Sure?", bool)
    assert (answer, answer.data) == (ElicitationAnswer("decline"), None)
