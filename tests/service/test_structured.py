from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from bridge.errors import DefinitionError, ReplyError
from bridge.service.ai_service import ai_service
from bridge.service.chat_model import ResponseFormat
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.messages import AiMessage, UserMessage
from bridge.service.structured import ReplyMismatchError, ReplyReader
from tests.service.fakes import FakeModel, call, calls

if TYPE_CHECKING:
    from bridge.service.events import Result


class Sentiment(Enum):
    GOOD = "good"
    BAD = "bad"


@dataclass
class Point:
    x: int
    y: int = 0


class Movie(TypedDict):
    title: str
    year: int


class Person(BaseModel):
    name: str
    born: date | None = None
    children: list[Person] = []


CASES: list[tuple[Any, str, Any]] = [
    (bool, '{"value": true}', True),
    (bool, "false", False),
    (int, '{"value": 42}', 42),
    (int, "42", 42),
    (int, '{"value": "42"}', 42),
    (float, '{"value": 1.5}', 1.5),
    (Sentiment, '{"value": "good"}', Sentiment.GOOD),
    (Sentiment, "BAD", Sentiment.BAD),
    (Sentiment, '"good"', Sentiment.GOOD),
    (Literal["a", "b"], '{"value": "b"}', "b"),
    (date, '{"value": "2026-08-01"}', date(2026, 8, 1)),
    (list[int], '{"value": [1, 2]}', [1, 2]),
    (list[int], "[1, 2]", [1, 2]),
    (list[Person], '{"value": [{"name": "Ada"}]}', [Person(name="Ada")]),
    (int | None, '{"value": null}', None),
    (Point, '{"x": 1, "y": 2}', Point(1, 2)),
    (Movie, '{"title": "M", "year": 1931}', {"title": "M", "year": 1931}),
    (Person, '```json\n{"name": "Ada", "born": "1815-12-10",}\n```', Person(name="Ada", born=date(1815, 12, 10))),
    (Person, '{"name": "A", "children": [{"name": "B"}]}', Person(name="A", children=[Person(name="B")])),
    (dict[str, int], '{"a": 1}', {"a": 1}),
]


@pytest.mark.parametrize(("kind", "text", "value"), CASES)
def test_a_reply_is_read_as_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    assert ReplyReader(kind).read(text) == value


@pytest.mark.parametrize("kind", [kind for kind, *_ in CASES])
def test_what_the_model_is_held_to_is_an_object(kind: Any) -> None:
    schema = ReplyReader(kind).response_format.schema
    assert schema["type"] == "object"


def test_a_value_that_is_no_object_is_wrapped() -> None:
    assert ReplyReader(int).response_format == ResponseFormat(
        {
            "type": "object",
            "properties": {"value": {"type": "integer"}},
            "required": ["value"],
            "additionalProperties": False,
        },
        "int",
    )


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (int, "about 42", "should be a valid integer"),
        (Sentiment, "ugly", "good"),
        (Person, "Ada", "should be a JSON object"),
        (Person, '{"born": "1815-12-10"}', "name: is required"),
        (Movie, '{"title": "M", "year": "old"}', "year: should be"),
    ],
)
def test_a_reply_that_does_not_fit_tells_what_is_wrong(kind: Any, text: str, problem: str) -> None:
    with pytest.raises(ReplyMismatchError) as caught:
        ReplyReader(kind).read(text)
    assert problem in str(caught.value)
    assert not str(caught.value).startswith("value")


@pytest.mark.anyio
async def test_a_reply_that_does_not_fit_is_sent_back_once_with_the_error() -> None:
    class Ages(Protocol):
        async def age(self, text: str) -> int: ...

    model, memory = FakeModel("old", '{"value": 36}'), ChatMemory()
    assert await ai_service(Ages, chat_model=model, memory=memory).age("Ada was 36.") == 36
    *_, wrong, correction = model.requests[1].messages
    assert wrong == AiMessage("old")
    assert isinstance(correction, UserMessage)
    assert "should be" in correction.text
    assert await memory.messages() == (UserMessage.of("Ada was 36."), AiMessage('{"value": 36}'))


@pytest.mark.anyio
async def test_a_reply_that_does_not_fit_twice_is_an_error_that_has_it() -> None:
    class Ages(Protocol):
        async def age(self, text: str) -> int: ...

    memory = ChatMemory()
    with pytest.raises(ReplyError, match=r"not what Ages\.age returns") as caught:
        await ai_service(Ages, chat_model=FakeModel("old", "very old"), memory=memory).age("?")
    assert caught.value.reply == "very old"
    assert await memory.messages() == ()


@pytest.mark.anyio
async def test_a_result_holds_data_after_tools_have_run() -> None:
    async def born(who: str) -> str:
        return f"{who}: 1815-12-10"

    class People(Protocol):
        async def find(self, text: str) -> Result[Person]: ...

    model = FakeModel(calls(call("born", who="Ada")), '{"name": "Ada", "born": "1815-12-10"}')
    result = await ai_service(People, chat_model=model, tools=[born]).find("Who?")
    assert result.content == Person(name="Ada", born=date(1815, 12, 10))
    assert [each.request.name for each in result.tool_executions] == ["born"]
    assert [request.response_format is not None for request in model.requests] == [True, True]


def test_a_type_that_a_model_cannot_reply_with_is_refused() -> None:
    class Opaque: ...

    class Odd(Protocol):
        async def make(self, text: str) -> Opaque: ...

    class Silent(Protocol):
        async def make(self, text: str) -> None: ...

    for interface in (Odd, Silent):
        with pytest.raises(DefinitionError, match=r"\.make returns .* which a model cannot reply with"):
            ai_service(interface, chat_model=FakeModel())
