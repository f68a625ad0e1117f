"""Properties of prompts' arguments, which are text whatever their types are."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import InvocationContext, PromptMessage, ToolExecutionRequest, prompt
from bridge.errors import ArgumentsError
from bridge.prompts import PromptBox
from bridge.wire.prompts import messages_from_wire, messages_to_wire

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    GREEN = "green"


Given = tuple[str, int, float, bool, Colour, str]
seen: list[Given] = []


@prompt
async def review(
    text: str, count: int, share: float, exact: bool, colour: Colour, size: Literal["s", "l"] = "s"
) -> list[str]:
    """Keep the arguments."""
    seen.append((text, count, share, exact, colour, size))
    return [text, str(count)]


(PROMPT,) = PromptBox(review)
TEXT = st.text(st.characters(codec="utf-8"))
NAMES = [each.name for each in PROMPT.arguments]


async def rendered(arguments: dict[str, str]) -> tuple[PromptMessage, ...]:
    seen.clear()
    result = await PROMPT.tool.executor.execute(ToolExecutionRequest("review", arguments), InvocationContext())
    messages: tuple[PromptMessage, ...] = result.value
    return messages


@given(
    text=TEXT,
    count=st.integers(-(2**60), 2**60),
    share=st.floats(allow_nan=False, allow_infinity=False),
    exact=st.booleans(),
    colour=st.sampled_from(Colour),
    size=st.sampled_from(["s", "l", None]),
)
async def test_values_that_are_written_as_text_come_back(
    text: str, count: int, share: float, colour: Colour, size: str | None, *, exact: bool
) -> None:
    arguments = {
        "text": text,
        "count": str(count),
        "share": repr(share),
        "exact": str(exact).lower(),
        "colour": colour.value,
    }
    messages = await rendered(arguments if size is None else {**arguments, "size": size})
    (found,) = seen
    assert (found[0], found[1], found[3:]) == (text, count, (exact, colour, size or "s"))
    assert math.isclose(found[2], share, abs_tol=0) or found[2] == share
    wire = messages_to_wire(await PROMPT.tool.executor.execute(_request(arguments), InvocationContext()))
    assert messages_from_wire(wire) == messages == (PromptMessage(text), PromptMessage(str(count)))


@given(st.dictionaries(st.sampled_from([*NAMES, "other", ""]), TEXT, max_size=7))
async def test_any_other_texts_are_refused_by_name_or_are_values(arguments: dict[str, str]) -> None:
    try:
        await rendered(arguments)
    except ArgumentsError:
        assert not seen
    else:
        ((text, count, share, exact, colour, size),) = seen
        assert (type(count), type(share), type(exact), type(colour)) == (int, float, bool, Colour)
        assert text == arguments["text"]
        assert size in {"s", "l"}


def _request(arguments: dict[str, Any]) -> ToolExecutionRequest:
    return ToolExecutionRequest("review", arguments)
