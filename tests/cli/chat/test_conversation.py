"""Conversations of ``bridge chat`` at a terminal: commands, approval, interruption, costs, questions of tools."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import forks, processes
from tests.cli.chatting import Provider, call, serving, text
from tests.cli.pseudo_terminal import DEADLINE_SECONDS, Terminal

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = '''
from bridge import tool

@tool
def wipe() -> str:
    """Delete everything."""
    return "wiped"
'''

HOSTILE = (
    TOOLS
    + """
from bridge import InvocationContext, ToolAnnotations, prompt

@tool("Look\\x1b]0;owned\\x07 at it.", annotations=ToolAnnotations(read_only=True))
def look() -> str:
    return "seen\\x1b[2J"

@tool(annotations=ToolAnnotations(read_only=True))
async def ask(context: InvocationContext) -> str:
    answer = await context.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return answer.content["name"]

@prompt(description="Review\\x1b[2J code.")
def review(code: str) -> str:
    return code
"""
)
REFUSED = "Error: the user never allows this tool in this conversation"


def talking(url: str, tmp_path: Path, tools: str = TOOLS, **env: str) -> Terminal:
    path = tmp_path / "tools.py"
    path.write_text(tools)
    environment = {"TERM": "dumb", "HOME": str(tmp_path), "XDG_STATE_HOME": "", "BRIDGE_STATE_DIR": ""} | env
    return Terminal("chat", str(path), "--model", "openai:test", "--base-url", url, env=environment)


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
        terminal.until("?? wipe {}\n   allow once, always or never? Enter for no: ")
        terminal.interrupt()
        terminal.until("interrupted")
        terminal.until("> ")
        terminal.type("y\n")
        terminal.until("Here.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert said(provider.requests[-1]) == ["y"]


def test_two_interrupts_between_answers_end_the_conversation(tmp_path: Path) -> None:
    provider = Provider(text("Hello."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Hi\n")
        terminal.until("Hello.")
        terminal.until("> ")
        terminal.interrupt()
        terminal.until("press Ctrl-C again, or Ctrl-D, to leave\n> ")
        terminal.interrupt()
        assert terminal.ended() == 130


def test_an_answer_to_a_question_for_approval_is_yes_or_no(tmp_path: Path) -> None:
    provider = Provider(call("wipe", "{}"), text("Wiped."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Wipe it.\n")
        for answer in ("perhaps", "YES"):
            terminal.until("allow once, always or never? Enter for no: ")
            terminal.type(f"{answer}\n")
        terminal.until("Wiped.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_an_interrupt_clears_the_line(tmp_path: Path) -> None:
    provider = Provider(text("Hello."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("forget this")
        terminal.interrupt()
        terminal.until("to leave\n> ")
        terminal.type("Hi\n")
        terminal.until("Hello.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert said(provider.requests[-1]) == ["Hi"]


@pytest.mark.parametrize(("answer", "results"), [("always", ["wiped", "wiped"]), ("never", [REFUSED, REFUSED])])
def test_always_and_never_hold_for_the_conversation(tmp_path: Path, answer: str, results: list[str]) -> None:
    provider = Provider(call("wipe", "{}"), text("One."), call("wipe", "{}"), text("Two."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.until("> ")
        terminal.type("Wipe it.\n")
        terminal.until("Enter for no: ")
        terminal.type(f"{answer}\n")
        terminal.until("One.")
        terminal.until("\n> ")
        terminal.type("Again.\n")
        assert "??" not in terminal.until("Two.")
        terminal.until("\n> ")
        terminal.type("/exit\n")
        assert terminal.ended() == 0
    messages = provider.requests[-1]["messages"]
    assert [message["content"] for message in messages if message["role"] == "tool"] == results


def test_commands_are_answered_without_the_model(tmp_path: Path) -> None:
    provider = Provider()
    with serving(provider) as url:
        terminal = talking(url, tmp_path, HOSTILE)
        terminal.until("> ")
        terminal.type("/help\n")
        terminal.until("/tools  list the tools\n")
        terminal.until("/review code=…  Review\\x1b[2J code.\n")
        terminal.until("Ctrl-D leaves")
        terminal.until("> ")
        terminal.type("/tools\n")
        terminal.until("wipe  Delete everything.  (asks)\nlook  Look\\x1b]0;owned\\x07 at it.\n")
        terminal.until("> ")
        terminal.type("/exit\n")
        assert terminal.ended() == 0
    assert provider.requests == []
    assert "\x1b[2J" not in terminal.raw
    assert "\x1b]0;" not in terminal.raw


def test_the_cost_of_each_tool_and_answer_is_shown(tmp_path: Path) -> None:
    provider = Provider(call("look", "{}"), text("Done."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path, HOSTILE)
        terminal.until("> ")
        terminal.type("Look.\n")
        terminal.until("-> look {}\n")
        terminal.until("<- seen\\x1b[2J (about 6 tokens, ")
        terminal.until(" ms)\nDone.\n== 2 replies, 1 call of tools, ")
        terminal.until(" ms\n> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_a_tool_asks_the_user_of_the_conversation(tmp_path: Path) -> None:
    provider = Provider(call("ask", "{}"), text("Done."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path, HOSTILE)
        terminal.until("> ")
        terminal.type("Ask.\n")
        terminal.until("the tool 'ask' asks:\n  | Who?\n")
        terminal.until("text, optional\n  name: ")
        terminal.type("Ada\n")
        terminal.until("<- Ada (")
        terminal.until("\n> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


@pytest.mark.parametrize("transport", ["stdio", "sse"], ids=["2026-07-28", "a revision with a handshake"])
def test_a_tool_of_a_server_asks_the_user_of_the_conversation(tmp_path: Path, transport: str) -> None:
    provider = Provider(*[call("ask", "{}"), text("Done.")] * 2)
    path = tmp_path / "served.py"
    path.write_text(HOSTILE)
    with ExitStack() as stack:
        model = ("--model", "openai:test", "--base-url", stack.enter_context(serving(provider)), "--approve", "auto")
        words = ["-m", "bridge", "serve", str(path)]
        if transport == "stdio":
            target = ["--", *forks.command(*words)]
        else:
            server = stack.enter_context(processes.serving(*words, "--transport", "sse", "--port", "0"))
            target = [f"{server.origin}/sse"]
        terminal = Terminal("chat", *model, *target, env={"TERM": "dumb"})
        for _ in range(2):
            terminal.until("> ")
            terminal.type("Ask.\n")
            terminal.until("the tool 'ask' asks:\n  | Who?\n")
            terminal.until("text, optional\n  name: ")
            terminal.type("Ada\n")
            terminal.until("<- Ada (")
        terminal.until("\n> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


def test_the_extra_is_named_once_where_it_is_missing(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    for package in ("prompt_toolkit", "rich"):
        (tmp_path / "without" / f"{package}.py").write_text("raise ImportError")
    with serving(Provider(text("**Hello**."))) as url:
        terminal = talking(url, tmp_path, TERM="xterm", PYTHONPATH=str(tmp_path / "without"))
        terminal.until("need the extra cli: pip install 'mcp-toolbridge[cli]'\n")
        terminal.until("> ")
        terminal.type("Hi\n")
        terminal.until("**Hello**.")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    assert "pip install" not in terminal.seen
