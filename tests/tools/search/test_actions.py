from __future__ import annotations

import pytest

from bridge.tools.search.actions import action_of_query, action_of_tool
from bridge.tools.search.words import words_of


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("delete the old server", "delete"),
        ("please rename the page", "update"),
        ("which rules did somebody add", "read"),
        ("how many users are there", "read"),
        ("how do I create a user", "create"),
        ("how", None),
        ("weather in Rome", None),
        ("", None),
    ],
)
def test_a_query_asks_for_an_action_and_a_question_reads(query: str, action: str | None) -> None:
    assert action_of_query(words_of(query)) == action


@pytest.mark.parametrize(
    ("name", "description", "action"),
    [
        ("sql_db_create", None, "create"),
        ("listUsers", "Removes nothing.", "read"),
        ("users", "Removes users.", "delete"),
        ("users", "Users, and how to remove them.", None),
        ("users", None, None),
    ],
)
def test_a_tools_action_is_in_its_name_or_opens_its_description(
    name: str, description: str | None, action: str | None
) -> None:
    assert action_of_tool(name, description) == action
