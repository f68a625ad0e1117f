"""Interactive input: lines, approval and interruption."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bridge.cli.terminal import write_json
from tests.cli.chatting import Provider, call, serving, text
from tests.cli.pseudo_terminal import DEADLINE_SECONDS, Terminal

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TOOLS = '''
from bridge import tool

@tool
def wipe() -> str:
    """Delete everything."""
    return "wiped"
'''


def talking(url: str, tmp_path: Path) -> Terminal:
    path = tmp_path / "tools.py"
    path.write_text(TOOLS)
    return Terminal("chat", str(path), "--model", "openai:test", "--base-url", url, env={"TERM": "dumb"})


def said(request: dict[str, list[dict[str, str]]]) -> list[str]:
    return [message["content"] for message in request["messages"]]


def test_an_answer_can_be_interrupted_and_the_conversation_goes_on_without_it(tmp_path: Path) -> None:
    provider = Provider(text("Hello."), None, text("Here."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Hi\n")
        terminal.until("Hello.")
        terminal.until("> ")
        terminal.type("Think hard\n")
        assert provider.stalls.wait(DEADLINE_SECONDS)
        terminal.interrupt()
        terminal.until("interrupted")
        assert provider.hung_up.wait(DEADLINE_SECONDS)
        terminal.until("> ")
        terminal.type("Are you there?\n")
        terminal.until("Here.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert said(provider.requests[-1]) == ["Hi", "Hello.", "Are you there?"]


def test_a_question_for_approval_can_be_interrupted_and_the_next_line_is_the_next_question(tmp_path: Path) -> None:
    provider = Provider(call("wipe", "{}"), text("Here."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Wipe it.\n")
        terminal.until("?? wipe {} [y/N]: ")
        terminal.interrupt()
        terminal.until("interrupted")
        terminal.until("> ")
        terminal.type("y\n")
        terminal.until("Here.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert said(provider.requests[-1]) == ["y"]


def test_an_interrupt_between_answers_ends_the_conversation(tmp_path: Path) -> None:
    provider = Provider(text("Hello."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Hi\n")
        terminal.until("Hello.")
        terminal.until("> ")
        terminal.interrupt()
        assert terminal.ended() == 130


def test_an_answer_to_a_question_for_approval_is_yes_or_no(tmp_path: Path) -> None:
    provider = Provider(call("wipe", "{}"), text("Wiped."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Wipe it.\n")
        for answer in ("perhaps", "YES"):
            terminal.until("?? wipe {} [y/N]: ")
            terminal.type(f"{answer}\n")
        terminal.until("Wiped.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_numbers_that_json_does_not_have_are_null(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_json([float("inf"), float("nan"), 1.5])
    assert json.loads(capfdbinary.readouterr().out) == [None, None, 1.5]
