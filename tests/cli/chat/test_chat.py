"""``bridge chat``, against a server of this test that speaks OpenAI's chat completions API."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import forks
from tests.cli.chatting import Provider, call, serving, text
from tests.cli.pseudo_terminal import DEADLINE_SECONDS, Terminal
from tests.redis_server import redis_server

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

ENVIRONMENT = os.environ | {"OPENAI_API_KEY": "test"}
TOOLS = '''
from bridge import ToolAnnotations, tool

@tool(annotations=ToolAnnotations(read_only=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("printed by the tool")
    return a + b

@tool
def wipe() -> str:
    """Delete everything."""
    return "wiped"
'''


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.py"
    path.write_text(TOOLS)
    return path


def run(*arguments: str, env: Mapping[str, str] = ENVIRONMENT, said: str = "") -> subprocess.CompletedProcess[str]:
    words = ["-m", "bridge", "chat", *arguments]
    return forks.run(words, cwd=Path.cwd(), env=env, timeout=DEADLINE_SECONDS, stdin=said)


def chat(provider: Provider, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    with serving(provider) as url:
        return run(*arguments, "--model", "openai:test", "--base-url", url, said=said)


def test_a_question_is_answered_with_a_tool_and_only_the_answer_is_data(tools: Path) -> None:
    provider = Provider(call("add", '{"a": 1, "b": 2}'), text("The sum", " is 3."))
    done = chat(provider, str(tools), "--once", "1 + 2?", "--system", "Be brief.")
    assert (done.returncode, done.stdout) == (0, "The sum is 3.\n"), done.stderr
    lines = done.stderr.splitlines()
    assert '-> add {"a":1,"b":2}' in lines
    assert any(line.startswith("<- 3 (") and line.endswith(" ms)") for line in lines)
    assert "printed by the tool" in lines
    first, second = provider.requests
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert [each["function"]["name"] for each in first["tools"]] == ["add", "wipe"]
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call-1", "content": "3"}


@pytest.mark.parametrize(
    ("approve", "result"),
    [
        ("auto", "wiped"),
        ("deny", "Error: the user allows no tool that may change something"),
        ("ask", "Error: there is no terminal to ask for approval; --approve auto allows every tool"),
    ],
)
def test_a_tool_that_may_change_something_needs_approval(tools: Path, approve: str, result: str) -> None:
    provider = Provider(call("wipe", "{}"), text("Done."))
    done = chat(provider, str(tools), "--once", "Wipe it.", "--approve", approve)
    assert done.returncode == 0, done.stderr
    assert provider.requests[1]["messages"][-1]["content"] == result


@pytest.mark.parametrize(
    ("options", "told"),
    [([], "Error: password=hush"), (["--hide-errors"], "Error: the tool 'crash' failed; its server's log says why")],
)
def test_the_text_of_an_exception_can_be_kept_from_the_model(tools: Path, options: list[str], told: str) -> None:
    tools.write_text("def crash():\n    raise RuntimeError('password=hush')\n", encoding="utf-8")
    provider = Provider(call("crash", "{}"), text("Sorry."))
    done = chat(provider, f"{tools}:crash", "--once", "Try.", "--approve", "auto", *options)
    assert provider.requests[1]["messages"][-1]["content"] == told
    assert "RuntimeError: password=hush" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trusted", "result"), [(False, "Error: the user allows no tool that may change something"), (True, "3")]
)
def test_a_server_that_is_not_trusted_cannot_annotate_its_tools_out_of_approval(
    tools: Path, tmp_path: Path, trusted: bool, result: str
) -> None:
    server = {"command": sys.executable, "args": ["-m", "bridge", "serve", str(tools)], "trusted": trusted}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"math": server}}))
    provider = Provider(call("add", '{"a": 1, "b": 2}'), text("Done."))
    done = chat(provider, str(config), "--once", "1 + 2?", "--approve", "deny")
    assert done.returncode == 0, done.stderr
    assert provider.requests[1]["messages"][-1]["content"] == result


def test_a_person_is_shown_all_of_the_arguments_and_nothing_that_deceives(tools: Path) -> None:
    tools.write_text(
        "from bridge import tool\n@tool\ndef send(text: str, to: str) -> str:\n    return 'sent'\n", encoding="utf-8"
    )
    arguments = json.dumps({"text": "x" * 1_000 + "\u202e\x9b2J\u3164", "to": "everybody"}, ensure_ascii=False)
    provider = Provider(call("send", arguments), text("Se", "nt.\x1b[2J\u202e"))
    with serving(provider) as url:
        terminal = Terminal("chat", str(tools), "--model", "openai:test", "--base-url", url, env={"TERM": "dumb"})
        terminal.until("> ")
        terminal.type("Send it.\n")
        terminal.until("?? send ")
        terminal.until("x" * 1_000 + r"\u202e\u009b2J\u3164" + '","to":"everybody"}')
        terminal.until("Enter for no: ")
        terminal.type("n\n")
        terminal.until(r"Sent.\x1b[2J\u202e")
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0


@pytest.mark.parametrize("where", ["a file", "a Redis"])
def test_a_conversation_goes_on_and_is_kept_for_the_next_time(tools: Path, tmp_path: Path, where: str) -> None:
    with ExitStack() as stack:
        memory = str(tmp_path / "memory.db")
        if where == "a Redis":
            memory = stack.enter_context(redis_server(tmp_path)).url
        assert_kept(tools, memory)


def assert_kept(tools: Path, memory: str) -> None:
    provider = Provider(text("Hello, Ada."), text("Ada."), text("Still Ada."))
    done = chat(provider, str(tools), "--memory", memory, said="I am Ada.\n\nWho am I?\n")
    assert (done.returncode, done.stdout) == (0, "Hello, Ada.\nAda.\n"), done.stderr
    assert "2 tools: add, wipe" in done.stderr
    again = chat(provider, str(tools), "--memory", memory, "--once", "And now?")
    assert again.stdout == "Still Ada.\n"
    said = [message["content"] for message in provider.requests[-1]["messages"]]
    assert said == ["I am Ada.", "Hello, Ada.", "Who am I?", "Ada.", "And now?"]


@pytest.mark.parametrize(
    ("memory", "code", "said"),
    [
        ("redis://:secret@127.0.0.1:1/0", 1, "bridge chat: Redis at 127.0.0.1:1 cannot be used: "),
        ("redis://127.0.0.1:none", 2, "bridge chat: --memory: "),
    ],
)
def test_a_memory_that_cannot_be_used_is_one_line(tools: Path, memory: str, code: int, said: str) -> None:
    done = chat(Provider(), str(tools), "--memory", memory, "--once", "hi")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1].startswith(said)
    assert "secret" not in done.stderr


def test_a_person_at_the_terminal_is_asked_for_approval(tools: Path) -> None:
    provider = Provider(call("wipe", "{}"), text("Wiped."), call("wipe", "{}"), text("Not wiped."))
    with serving(provider) as url:
        command = ("chat", str(tools), "--model", "openai:test", "--base-url", url)
        terminal = Terminal(*command, env={"TERM": "dumb"})
        for answer, outcome in (("y", "Wiped."), ("n", "Not wiped.")):
            terminal.until("> ")
            terminal.type("Wipe it.\n")
            terminal.until("Enter for no: ")
            terminal.type(f"{answer}\n")
            terminal.until(outcome)
        terminal.until("> ")
        terminal.type("\x04")
        assert terminal.ended() == 0
    results = [request["messages"][-1]["content"] for request in provider.requests[1::2]]
    assert results == ["wiped", "Error: the user said no"]


def test_a_provider_that_is_not_there_is_one_line(tools: Path) -> None:
    done = run(str(tools), "--model", "openai:x", "--once", "hi", "--base-url", "http://127.0.0.1:1/v1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("bridge chat: openai: ")


def test_a_missing_key_is_one_line_that_says_what_to_do(tools: Path) -> None:
    without = {name: value for name, value in ENVIRONMENT.items() if name != "OPENAI_API_KEY"}
    done = run(str(tools), "--model", "openai:x", "--once", "hi", env=without)
    assert done.returncode == 1
    assert done.stderr == "bridge: openai: there is no API key; set OPENAI_API_KEY, or pass api_key=\n"


@pytest.mark.parametrize(
    ("provider", "package"), [("openai", "openai"), ("anthropic", "anthropic"), ("bedrock", "boto3")]
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    tools: Path, tmp_path: Path, provider: str, package: str
) -> None:
    without = tmp_path / "without"
    without.mkdir()
    (without / f"{package}.py").write_text("raise ImportError")
    environment = ENVIRONMENT | {"PYTHONPATH": str(without)}
    done = run(str(tools), "--model", f"{provider}:x", "--once", "hi", env=environment)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"pip install 'mcp-toolbridge[{provider}]'" in line


@pytest.mark.parametrize("model", ["gpt", "openai:", "nobody:gpt"])
def test_a_model_is_named_with_its_provider(tools: Path, model: str) -> None:
    done = run(str(tools), "--model", model, "--once", "hi")
    assert done.returncode == 2
    assert f"not {model!r}" in done.stderr


def test_a_memory_that_cannot_be_opened_is_wrong_usage_in_one_line(tools: Path) -> None:
    done = run(str(tools), "--model", "openai:x", "--once", "hi", "--memory", "/nosuch/x.db")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "bridge chat: --memory: the conversations in '/nosuch/x.db' cannot be used: "
        "[Errno 2] No such file or directory: '/nosuch/x.db'; name a SQLite file"
    )
    assert len(done.stderr.splitlines()) == 1


OFFERING = """
from bridge import Image, PromptMessage, prompt, resource

@prompt
def review(code: str) -> list[PromptMessage]:
    return [PromptMessage("Hello"), PromptMessage("Hi", role="assistant"), PromptMessage(f"Review {code}")]

@resource("notes://{day}")
def notes(day: str) -> str:
    return f"notes of {day}"
"""


@pytest.fixture
def offering(tmp_path: Path) -> Path:
    path = tmp_path / "offering.py"
    path.write_text(OFFERING)
    return path


def test_a_prompt_is_written_as_its_name_with_arguments(offering: Path) -> None:
    provider = Provider(text("Fine."))
    done = chat(provider, str(offering), "--once", "/review 'code=x = 1'")
    assert (done.returncode, done.stdout) == (0, "Fine.\n"), done.stderr
    messages = [(message["role"], message["content"]) for message in provider.requests[0]["messages"]]
    assert [role for role, _ in messages] == ["user", "assistant", "user"]
    assert "Review x = 1" in str(messages[2][1])


def test_a_resource_is_written_as_its_uri_and_its_content_goes_with_the_question(offering: Path) -> None:
    provider = Provider(text("Fine."))
    done = chat(provider, str(offering), "--once", "Summarize @notes://monday, me@home.org and @ada.")
    assert done.returncode == 0, done.stderr
    [message] = provider.requests[0]["messages"]
    content = message["content"] if isinstance(message["content"], str) else str(message["content"])
    assert "Summarize @notes://monday, me@home.org and @ada." in content
    assert "notes of monday" in content
    assert "notes of monday," not in content


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("/reviw code=x", "there is no prompt 'reviw'; did you mean 'review'?"),
        ("/review x", "'x' does not have the form name=value; write /review name=value"),
        ("/review 'code=x", "the arguments of /review cannot be read: No closing quotation"),
        ("/review", "code"),
        ("Read @files://a", "there is no resource 'files://a'"),
    ],
    ids=["name", "form", "quotes", "missing", "uri"],
)
def test_a_wrong_prompt_or_resource_is_an_error_and_the_model_is_not_asked(
    offering: Path, question: str, error: str
) -> None:
    provider = Provider(text("Fine."))
    done = chat(provider, str(offering), "--once", question)
    assert (done.returncode, done.stdout) == (1, "")
    assert error in done.stderr
    assert provider.requests == []


@pytest.mark.parametrize(
    ("question", "error"),
    [
        ("/HLP", "there is no prompt 'HLP'; did you mean the command /help?"),
        ("/exit now", "there is no prompt 'exit'; did you mean the command /exit?"),
        ("/quux", "there is no prompt 'quux'"),
    ],
)
def test_a_mistyped_command_is_an_error_and_the_model_is_not_asked(tools: Path, question: str, error: str) -> None:
    provider = Provider(text("Fine."))
    done = chat(provider, str(tools), "--once", question)
    assert (done.returncode, done.stdout) == (1, "")
    assert error in done.stderr
    assert provider.requests == []


def test_a_path_is_no_prompt(tools: Path) -> None:
    provider = Provider(text("Fine."))
    assert chat(provider, str(tools), "--once", "/etc/hosts and /review").returncode == 0
    assert provider.requests[0]["messages"][0]["content"] in (
        "/etc/hosts and /review",
        [{"type": "text", "text": "/etc/hosts and /review"}],
    )
