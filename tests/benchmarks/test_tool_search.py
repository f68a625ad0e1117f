"""The questions on which tool search is measured, and the least that words alone have to find."""

from __future__ import annotations

import pytest

from bridge.tools.search.index import ToolIndex
from tests.benchmarks.tool_search.questions import AT, questions, recall, tools


def test_the_questions_are_many_and_their_tools_are_known() -> None:
    asked, names = questions(), {tool.name for tool in tools()}
    assert len({question.text for question in asked}) == len(asked) >= 300
    assert all(question.answers and question.answers <= names for question in asked)
    servers = {answer.partition("_")[0] for question in asked for answer in question.answers}
    assert len(servers) >= 25


@pytest.mark.parametrize(("is_tuned_on", "least"), [(True, (0.57, 0.79)), (False, (0.50, 0.75))])
def test_words_alone_find_what_the_documentation_says(is_tuned_on: bool, least: tuple[float, float]) -> None:
    index = ToolIndex(tools())
    asked = [question for question in questions() if question.is_tuned_on is is_tuned_on]
    found = recall(lambda text: index.search(text, limit=AT), asked)
    assert (found.at_1 >= least[0], found.at_5 >= least[1]) == (True, True), found
