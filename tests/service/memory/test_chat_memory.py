from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import DefinitionError
from bridge.service.memory.chat_memory import Window, WindowView, estimate_tokens, message_window, token_window
from bridge.service.messages import (
    AiMessage,
    ChatMessage,
    SystemMessage,
    ToolExecutionResultMessage,
    UserMessage,
)
from bridge.tools.content import Text
from bridge.tools.tool import ToolExecutionRequest


def user(text: str) -> UserMessage:
    return UserMessage.of(text)


def turn_with_tools(text: str, calls: int) -> list[ChatMessage]:
    requests = tuple(ToolExecutionRequest("tool", "{}", f"{text}-{i}") for i in range(calls))
    results = [ToolExecutionResultMessage(each.id, "tool", (Text("ok"),)) for each in requests]
    return [user(text), AiMessage(None, requests), *results, AiMessage(f"re {text}")]


def shown(window: Window, history: list[ChatMessage], system: str | None = None) -> list[ChatMessage]:
    view = WindowView(window, None if system is None else SystemMessage(system), history)
    return list(view.messages())


def test_the_newest_messages_are_shown() -> None:
    history: list[ChatMessage] = [user("1"), AiMessage("re 1"), user("2"), AiMessage("re 2")]
    assert shown(message_window(2), history) == history[2:]
    assert shown(message_window(4), history) == history


def test_what_is_shown_begins_with_a_users_message() -> None:
    history: list[ChatMessage] = [user("1"), AiMessage("re 1"), user("2"), AiMessage("re 2")]
    assert shown(message_window(3), history) == history[2:]


def test_before_a_turn_nothing_is_shown_that_no_users_message_begins() -> None:
    history: list[ChatMessage] = [user("1"), AiMessage("re 1")]
    assert shown(message_window(1), history) == history[1:]
    view = WindowView(message_window(2), None, history)
    view.add(user("2"))
    assert view.messages() == (user("2"),)


def test_the_system_message_stays_first_and_counts() -> None:
    history: list[ChatMessage] = [user("1"), AiMessage("re 1"), user("2"), AiMessage("re 2")]
    assert shown(message_window(3), history, "Be kind.") == [SystemMessage("Be kind."), *history[2:]]
    assert shown(message_window(1), history, "Be kind.") == [SystemMessage("Be kind.")]


def test_a_tool_call_goes_with_all_its_results() -> None:
    first, second = turn_with_tools("1", 3), turn_with_tools("2", 1)
    for limit in range(len(second), len(first) + len(second)):
        assert shown(message_window(limit), [*first, *second]) == second


def test_tokens_are_counted_where_the_window_counts_them() -> None:
    history: list[ChatMessage] = [user("x" * 400), AiMessage("y" * 40), user("z" * 40), AiMessage("w" * 40)]
    last_two = sum(map(estimate_tokens, history[2:]))
    assert shown(token_window(last_two), history) == history[2:]
    assert shown(token_window(last_two - 1), history) == history[3:]
    assert shown(token_window(10_000), history) == history


def test_the_running_turn_is_never_cut_and_pushes_out_what_was_before() -> None:
    view = WindowView(message_window(3), None, [user("1"), AiMessage("re 1")])
    turn = turn_with_tools("2", 4)
    for message in turn:
        view.add(message)
    assert list(view.messages()) == turn
    assert list(view.turn) == turn


def test_without_a_window_everything_is_shown() -> None:
    view = WindowView(None, SystemMessage("s"))
    view.add(user("1"), AiMessage("2"))
    assert view.messages() == (SystemMessage("s"), user("1"), AiMessage("2"))


@pytest.mark.parametrize("make", [message_window, token_window])
def test_a_window_that_admits_nothing_is_refused(make: object) -> None:
    with pytest.raises(DefinitionError, match="at least 1, not 0"):
        make(0)  # type: ignore[operator]  # both take a number


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 20))
def test_no_window_ever_parts_a_tool_call_from_its_results(calls: list[int], limit: int) -> None:
    history: list[ChatMessage] = []
    for i, number in enumerate(calls):
        history += turn_with_tools(str(i), number) if number else [user(str(i)), AiMessage("ok")]
    messages = shown(message_window(limit), history)
    assert len(messages) <= limit
    wanted = [each.id for m in messages if isinstance(m, AiMessage) for each in m.tool_execution_requests]
    assert wanted == [m.id for m in messages if isinstance(m, ToolExecutionResultMessage)]
    assert not any(isinstance(m, UserMessage) for m in messages) or isinstance(messages[0], UserMessage)
