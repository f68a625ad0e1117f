"""Editing of questions at a terminal: history, completion, several lines."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from tempfile import mkstemp
from threading import Thread
from typing import Any

import pytest

from bridge.cli.chat import editor
from bridge.cli.chat.editor import QuestionEditor
from bridge.server.features import Features
from tests.cli.chatting import Provider, serving, text
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, DEADLINE_SECONDS, TAB, UP, Terminal

OFFERING = """
from bridge import prompt, resource

@prompt
def review(code: str) -> str:
    return f"Review {code}"

@resource("notes://today", title="bad\\x1b[2J title")
def today() -> str:
    return "notes of today"
"""


def talking(url: str, home: Path, *options: str) -> Terminal:
    path = home / "offering.py"
    path.write_text(OFFERING)
    environment = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "BRIDGE_STATE_DIR": ""}
    words = ("chat", str(path), "--model", "openai:test", "--base-url", url, *options)
    terminal = Terminal(*words, env=environment)
    terminal.until("prompts: /review\n")
    terminal.until(">")
    return terminal


def asked(provider: Provider) -> list[str]:
    contents = [request["messages"][-1]["content"] for request in provider.requests]
    return [each if isinstance(each, str) else "".join(part["text"] for part in each) for each in contents]


def left(terminal: Terminal) -> None:
    terminal.type(CTRL_D)
    assert terminal.ended() == 0


def answered(terminal: Terminal, typed: str, answer: str) -> None:
    terminal.type(f"{typed}\r")
    terminal.until(answer)
    terminal.until("== 1 reply")
    terminal.until("\n>")


def test_a_line_is_edited_and_the_history_is_kept_for_the_next_conversation(tmp_path: Path) -> None:
    provider = Provider(text("One."), text("Two."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        answered(terminal, "helo\x1b[Dl", "One.")  # arrow left
        left(terminal)
        terminal = talking(url, tmp_path)
        answered(terminal, f"{UP}!", "Two.")
        left(terminal)
    assert asked(provider) == ["hello", "hello!"]
    history = tmp_path / "state" / "bridge" / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+hello!" in history.read_text()


def test_a_long_history_loses_its_older_half(tmp_path: Path) -> None:
    history = tmp_path / "state" / "bridge" / "chat_history"
    history.parent.mkdir(parents=True)
    history.write_text("".join(f"\n# 2026-01-31 12:00:00\n+question {n:06}\n" for n in range(30_000)))
    provider = Provider(text("One."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        answered(terminal, UP, "One.")
        left(terminal)
    assert asked(provider) == ["question 029999"]
    assert history.stat().st_size < 600_000
    assert history.read_text().startswith("\n# 2026-01-31 12:00:00\n+question 0")


def test_a_question_is_kept_that_is_asked_while_another_conversation_drops_the_older_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tmp_path / "chat_history"
    history.write_text("\n# 2026-01-31 12:00:00\n+question\n" * 40_000)
    storing = Thread(target=lambda: editor._History(str(history)).store_string("asked meanwhile"))

    def make(**options: Any) -> tuple[int, str]:
        storing.start()  # after the file is read, before it is replaced
        storing.join(0.2)
        return mkstemp(**options)

    monkeypatch.setattr(editor, "mkstemp", make)
    QuestionEditor(Features(), history)
    storing.join(DEADLINE_SECONDS)
    assert history.read_text().endswith("+asked meanwhile\n")


def test_a_history_that_cannot_be_replaced_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = tmp_path / "chat_history"
    whole = "\n# 2026-01-31 12:00:00\n+question\n" * 40_000
    history.write_text(whole)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        QuestionEditor(Features(), history)
    assert history.read_text() == whole
    assert {path.name for path in tmp_path.iterdir()} <= {"chat_history", "chat_history.lock"}


def test_the_history_can_be_left_out(tmp_path: Path) -> None:
    provider = Provider(text("One."), text("Two."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path, "--no-history")
        answered(terminal, "secret", "One.")
        answered(terminal, UP, "Two.")
        left(terminal)
    assert asked(provider) == ["secret", "secret"]
    assert not (tmp_path / "state").exists()


def test_a_history_that_cannot_be_kept_is_reported_and_the_conversation_goes_on(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    provider = Provider(text("One."))
    with serving(provider) as url:
        environment_terminal = talking(url, tmp_path)
        assert "no history is kept" in environment_terminal.raw
        answered(environment_terminal, "hi", "One.")
        left(environment_terminal)


def test_pasted_lines_are_one_question(tmp_path: Path) -> None:
    provider = Provider(text("One."), text("Two."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        answered(terminal, "\x1b[200~first\nsecond\x1b[201~", "One.")
        answered(terminal, "third\x1b\rfourth", "Two.")
        left(terminal)
    assert asked(provider) == ["first\nsecond", "third\nfourth"]


def test_commands_prompts_and_resources_are_completed(tmp_path: Path) -> None:
    provider = Provider(text("One."), text("Two."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        for typed, offered in (("/re", "review"), (" co", "code=")):
            terminal.type(typed)
            terminal.until(offered)
            terminal.type(TAB)
        answered(terminal, "x", "One.")
        terminal.type("Read @no")
        terminal.until("bad\\x1b[2J title")
        answered(terminal, TAB, "Two.")
        terminal.type("/ex")
        terminal.until("leave the conversation")
        terminal.type(f"{TAB}\r")
        assert terminal.ended() == 0
    assert asked(provider)[0] == "Review x"
    assert asked(provider)[1].startswith("Read @notes://today")
    assert "notes of today" in asked(provider)[1]
    assert "\x1b[2J title" not in terminal.raw


def test_an_interrupt_clears_the_line_and_a_second_one_leaves(tmp_path: Path) -> None:
    provider = Provider(text("One."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        terminal.type("forget this")
        terminal.until("forget this")
        terminal.type(CTRL_C)
        terminal.until("press Ctrl-C again, or Ctrl-D, to leave\n>")
        answered(terminal, "hi", "One.")
        terminal.type(CTRL_C)
        terminal.until("to leave\n>")
        terminal.type(CTRL_C)
        assert terminal.ended() == 130
    assert asked(provider) == ["hi"]


def test_an_answer_is_rendered_and_can_be_interrupted(tmp_path: Path) -> None:
    provider = Provider(text("Some **bo", "ld** [text](https://a.example)."), None, text("Here."))
    with serving(provider) as url:
        terminal = talking(url, tmp_path)
        answered(terminal, "hi", "Some bold text (https://a.example).")
        assert "\x1b]8;" not in terminal.raw
        terminal.type("think\r")
        assert provider.stalls.wait(20)
        terminal.interrupt()
        terminal.until("interrupted; the question and the answer are not stored")
        assert provider.hung_up.wait(20)
        terminal.until("\n>")
        answered(terminal, "again", "Here.")
        left(terminal)
