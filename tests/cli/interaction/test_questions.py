"""Questions of tools that `bridge call`, `read` and `prompt` answer at a terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import closing
from textwrap import dedent
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import InvocationContext
from bridge.cli.interaction.lines import PlainInput
from bridge.cli.interaction.questions import QuestionAnswerer
from bridge.tools.questions import ElicitationAnswer, UrlElicitation
from tests import forks, processes
from tests.cli.chatting import Provider, serving, text
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.tools.questions import Answer
    from tests.cli.conftest import Run

ASKING = '''
    import json
    from bridge import InvocationContext, Text, prompt, resource, tool
    from bridge.tools import SamplingMessage, UrlElicitation

    FORM = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "description": "Your\\x1b[2J name"},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
            "days": {"type": "array", "items": {"type": "string", "enum": ["Mon", "Tue", "Wed"]}},
            "mail": {"type": "string", "format": "email"},
            "agree": {"type": "boolean"},
        },
        "required": ["name", "age", "agree"],
    }

    @tool
    async def register(context: InvocationContext) -> str:
        """Register."""
        await context.progress(1, 4, "asking")
        answer = await context.elicit("Who are you?\\x1b]0;owned\\x07\\n> allow? [y/N]", FORM)
        return f"{answer.action} {json.dumps(answer.content)}"

    @tool
    async def visit(context: InvocationContext) -> str:
        """Visit a page."""
        question = UrlElicitation("Please sign in.", "https://b\u00fccher.example/login?a=\\u202e1")
        return (await context.ask({"page": question}))["page"].action

    @tool
    async def sample(context: InvocationContext) -> str:
        """Ask a model."""
        answer = await context.sample([SamplingMessage("user", (Text("Hi"),))], max_tokens=9)
        return f"{answer.model}: {answer.content[0].text}"

    @tool
    async def folders(context: InvocationContext) -> str:
        """List folders."""
        return " ".join(root.uri for root in await context.roots())

    @resource("secret://one")
    async def secret(context: InvocationContext) -> str:
        """A secret."""
        return (await context.elicit("Really?", {"type": "object", "properties": {}})).action

    @prompt
    async def greet(context: InvocationContext) -> str:
        """Greet."""
        return (await context.elicit("Really?", {"type": "object", "properties": {}})).action
'''


TWICE = """
    from contextlib import suppress

    from bridge import InvocationContext, ToolError, tool


    @tool
    async def twice(context: InvocationContext) -> str:
        with suppress(ToolError):
            await context.elicit("Sure?", {"type": "object", "properties": {}})
        await context.elicit("Really?", {"type": "object", "properties": {}})
        return "asked"
"""


@pytest.fixture
def asking(directory: Path) -> Path:
    (directory / "asking.py").write_text(dedent(ASKING), encoding="utf-8")
    return directory


def server() -> list[str]:
    """Words at the end of a command that starts the tools as a server."""
    return ["--", *forks.command("-m", "bridge", "serve", "asking.py")]


def at_a_terminal(asking: Path, environment: dict[str, str], *words: str, where: str = "asking.py") -> Terminal:
    command, *rest = words
    arguments = [command, where, *rest] if where else [command, *rest, *server()]
    return Terminal(*arguments, cwd=asking, env=environment)


@pytest.fixture(params=["asking.py", ""], ids=["in this process", "a server"])
def where(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


def test_a_form_is_filled_in_field_by_field(asking: Path, environment: dict[str, str], where: str) -> None:
    terminal = at_a_terminal(asking, environment, "call", "register", where=where)
    asker = "the tool 'register' asks:" if where else "the server 'python' asks:"
    terminal.until(f"{asker}\n  | Who are you?\\x1b]0;owned\\x07\n  | > allow? [y/N]\n")
    for shown, typed in [
        ("name: text of at least 2 characters\n    Your\\x1b[2J name\n  name: ", "A"),
        ('expected text of at least 2 characters, not "A"\n  name: ', ""),
        ("a value is required: text of at least 2 characters\n  name: ", "Ada"),
        ("age: a whole number of at least 0 and at most 150\n  age: ", "old"),
        ("expected a whole number of at least 0 and at most 150, not 'old'\n  age: ", "200"),
        ("expected a whole number of at least 0 and at most 150, not 200\n  age: ", "36"),
        ("colour: one of the choices, optional\n    1. red\n    2. blue\n  colour [blue]: ", "green"),
        ("'green' is not one of the choices; type a number from 1 to 2, or a value\n  colour [blue]: ", ""),
        ("days: choices separated by commas, optional\n    1. Mon\n    2. Tue\n    3. Wed\n  days: ", "1, wed"),
        ("mail: an address such as ada@example.com, optional\n  mail: ", ""),
        ("agree: yes or no\n  agree: ", "y"),
    ]:
        terminal.until(shown.rstrip())
        terminal.type(f"{typed}\r")
    terminal.until('accept {"name": "Ada", "age": 36, "colour": "blue", "days": ["Mon", "Wed"], "agree": true}')
    assert terminal.ended() == 0
    assert "\x1b]0;" not in terminal.raw
    assert "\x1b[2J" not in terminal.raw


def test_a_server_of_a_revision_with_a_handshake_asks(asking: Path, environment: dict[str, str]) -> None:
    with processes.serving(
        "-m", "bridge", "serve", str(asking / "asking.py"), "--transport", "sse", "--port", "0"
    ) as server:
        terminal = Terminal("call", f"{server.origin}/sse", "visit", cwd=asking, env=environment)
        terminal.until("asks you to visit a page:")
        terminal.until("[y/N]:")
        terminal.type("y\r")
        terminal.until("accept\n")
        assert terminal.ended() == 0


@pytest.mark.parametrize(("key", "shown", "action"), [(CTRL_D, "declined", "decline"), (CTRL_C, "cancelled", "cancel")])
def test_a_form_is_declined_or_cancelled(
    asking: Path, environment: dict[str, str], where: str, key: str, shown: str, action: str
) -> None:
    terminal = at_a_terminal(asking, environment, "call", "register", where=where)
    terminal.until(" name\n  name:")
    terminal.type(key)
    terminal.until(shown)
    terminal.until(f"{action} null")
    assert terminal.ended() == 0


def test_a_page_is_shown_with_its_host_and_is_not_opened(asking: Path, environment: dict[str, str], where: str) -> None:
    terminal = at_a_terminal(asking, environment, "call", "visit", where=where)
    terminal.until("asks you to visit a page:\n  | Please sign in.\n")
    terminal.until(
        "  https://bücher.example/login?a=\\u202e1\n  host: xn--bcher-kva.example (not ASCII: bücher.example)\n"
    )
    terminal.until("[y/N]:")
    terminal.type("yes\r")
    terminal.until("accept\n")
    assert terminal.ended() == 0


@pytest.mark.parametrize("url", ["https://evil.example\\@good.example/", "https://evil.exa\nmple/", "https://a b/"])
def test_the_host_of_an_address_that_browsers_read_otherwise_is_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdin, "readline", lambda: "no\n")

    async def ask() -> Answer:
        with closing(PlainInput()) as lines:
            return await QuestionAnswerer(lines).answer(UrlElicitation("Sign in.", url), InvocationContext())

    assert anyio.run(ask) == ElicitationAnswer("decline")
    assert "  host: not readable; do not visit it\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("read", "secret://one"), ("prompt", "greet")], ids=["read", "prompt"])
def test_questions_of_resources_and_prompts_are_answered(
    asking: Path, environment: dict[str, str], where: str, words: tuple[str, str]
) -> None:
    terminal = at_a_terminal(asking, environment, *words, where=where)
    terminal.until("| Really?\nagree? [y/N]:")
    terminal.type("y\r")
    terminal.until("accept")
    assert terminal.ended() == 0


def test_a_question_does_not_count_towards_the_time_of_the_call(asking: Path, environment: dict[str, str]) -> None:
    (asking / "slow.py").write_text(
        dedent("""
        import time
        from bridge import InvocationContext, tool
        from bridge.cli.interaction import lines

        class Slow(lines.PlainInput):
            async def _read(self, prompt):
                import anyio
                await anyio.sleep(0.6)  # longer than the timeout of the call
                return await super()._read(prompt)

        lines.can_edit = lambda: False
        lines.PlainInput = Slow

        @tool
        async def ask(context: InvocationContext) -> str:
            return (await context.elicit("Really?", {"type": "object", "properties": {}})).action
        """)
    )
    terminal = Terminal("call", "slow.py", "ask", "--timeout", "0.5", cwd=asking, env=environment)
    terminal.until("agree? [y/N]:")
    terminal.type("y\n")
    terminal.until("accept")
    assert terminal.ended() == 0


def test_without_the_extra_a_form_is_filled_in_too(asking: Path, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    for package in ("prompt_toolkit", "rich"):
        (tmp_path / "without" / f"{package}.py").write_text("raise ImportError")
    environment |= {"PYTHONPATH": str(tmp_path / "without")}
    terminal = at_a_terminal(asking, environment, "call", "register")
    terminal.until("name: ")
    terminal.until("\n  name: ")
    terminal.type("Ada\n")
    terminal.until("150\n  age: ")
    terminal.type(CTRL_D)
    terminal.until("decline null")
    assert terminal.ended() == 0


def test_at_a_terminal_that_cannot_edit_a_form_is_filled_in_too(asking: Path, environment: dict[str, str]) -> None:
    environment |= {"TERM": "dumb"}
    terminal = at_a_terminal(asking, environment, "call", "register")
    terminal.until(" name\n  name:")
    terminal.type("Ada\n")
    terminal.until("150\n  age:")
    terminal.interrupt()
    terminal.until("cancelled")
    terminal.until("cancel null")
    assert terminal.ended() == 0


def test_an_interrupted_form_leaves_the_terminal_as_it_was(asking: Path, environment: dict[str, str]) -> None:
    terminal = at_a_terminal(asking, environment, "call", "register")
    before = terminal.modes()
    terminal.until(" name\n  name:")
    assert terminal.modes() != before
    terminal.process.send_signal(signal.SIGINT)  # not the key Ctrl-C, which the form reads itself
    terminal.until("cancelled")
    terminal.until("cancel null")
    assert terminal.modes() == before
    assert terminal.ended() == 0


def test_where_there_is_no_terminal_a_question_is_refused_with_the_reason(asking: Path, run: Run) -> None:
    for words in (["call", "asking.py", "register"], ["call", "register", *server()]):
        done = run(*words)
        assert (done.returncode, done.stdout) == (1, "")
        reason = "asks the user a question, but this is not a terminal, so nobody can answer"
        assert done.stderr.count(reason) == 1
        assert "bridge:" in done.stderr


def test_the_reason_for_which_several_questions_are_refused_is_printed_once(directory: Path, run: Run) -> None:
    (directory / "twice.py").write_text(dedent(TWICE), encoding="utf-8")
    done = run("call", "twice.py", "twice")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("nobody can answer") == 1


def test_servers_can_be_told_that_nobody_answers(asking: Path, run: Run) -> None:
    done = run("call", "register", "--no-questions", *server())
    assert done.returncode == 1
    assert "needs a client with the capability elicitation.form" in done.stderr
    done = run("call", "asking.py", "register", "--no-questions")
    assert "its caller cannot be asked" in done.stderr


def test_a_completion_is_refused_without_a_model(asking: Path, run: Run) -> None:
    for words in (["call", "asking.py", "sample"], ["call", "sample", *server()]):
        done = run(*words)
        assert done.returncode == 1
        assert "asks for a completion of a chat model; give one with --model PROVIDER:NAME" in done.stderr


def test_a_completion_comes_from_the_given_model(asking: Path, run: Run) -> None:
    for words in (["call", "asking.py", "sample"], ["call", "sample"]):
        with serving(Provider(text("Hello."))) as url:
            options = ["--model", "openai:test", "--base-url", url]
            done = run(
                *words,
                *options,
                *([] if len(words) == 3 else server()),
                env={"OPENAI_API_KEY": "x"},
            )
        assert (done.returncode, done.stdout) == (0, "test: Hello.\n"), done.stderr
        assert "uses the model: 1 message, at most 9 tokens" in done.stderr


def test_roots_are_the_folders_of_the_option(asking: Path, run: Run) -> None:
    for words in (
        ["call", "asking.py", "folders", "--root", "."],
        ["call", "folders", "--root", ".", *server()],
    ):
        done = run(*words)
        assert (done.returncode, done.stdout.strip()) == (0, asking.resolve().as_uri()), done.stderr
    done = run("call", "asking.py", "folders")
    assert done.returncode == 1
    assert "asks for your folders; give them with --root FOLDER" in done.stderr


def test_the_options_are_checked(asking: Path, run: Run) -> None:
    done = run("call", "asking.py", "sample", "--model", "gpt")
    assert done.returncode == 2
    assert "--model: a chat model is named" in done.stderr
    assert run("call", "asking.py", "folders", "--root", os.devnull + "/x").returncode == 2
    assert json.dumps(run("call", "asking.py", "folders", "--root", "gone").stderr).count("gone") == 1
