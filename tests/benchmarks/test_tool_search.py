"""The questions on which tool search is measured, and the least that words alone have to find."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.tools.search.index import ToolIndex
from tests.benchmarks.tool_search.questions import AT, HELD_BACK, TUNED_ON, questions, recall, tools

if TYPE_CHECKING:
    from pathlib import Path


def test_the_questions_are_many_and_their_tools_are_known() -> None:
    tuned_on, held_back = questions(TUNED_ON), questions(HELD_BACK)
    asked, names = tuned_on + held_back, {tool.name for tool in tools()}
    assert len(tuned_on) >= 300
    assert len(held_back) >= 100
    assert len({question.text for question in asked}) == len(asked)
    assert all(question.answers and question.answers <= names for question in asked)
    servers = {answer.partition("_")[0] for question in asked for answer in question.answers}
    assert len(servers) >= 25


@pytest.mark.parametrize(("file", "least"), [(TUNED_ON, (0.62, 0.81)), (HELD_BACK, (0.58, 0.78))])
def test_words_alone_find_what_the_documentation_says(file: Path, least: tuple[float, float]) -> None:
    index = ToolIndex(tools())
    found = recall(lambda text: index.search(text, limit=AT), questions(file))
    assert (found.at_1 >= least[0], found.at_5 >= least[1]) == (True, True), found
