"""``bridge list``, ``read`` and ``prompt`` with resources and prompts: of Python, and of a server."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Protocol

import pytest

from tests import forks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

NOTES = '''
    from typing import Literal

    from bridge import File, Image, PromptMessage, prompt, resource, tool
    from bridge.errors import ResourceNotFoundError


    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


    @resource("notes://today", title="Today", mime_type="text/markdown")
    def today() -> str:
        """The notes of today."""
        return "buy \\x1b[31mmilk"


    @resource("notes://{day}")
    def of_day(day: str) -> str | None:
        if day == "never":
            raise ResourceNotFoundError(day)
        if day == "later":
            return None
        if day == "broken":
            raise RuntimeError("the secret reason")
        return f"notes of {day}"


    @resource("picture://cat", mime_type="image/png")
    def cat() -> bytes:
        return b"\\x89PNG\\x00\\xff"


    @resource("folder://all")
    def folder() -> list[File]:
        return [File("folder://a", "one"), File("folder://b", b"two")]


    @prompt(title="Review code")
    def review(code: str, language: Literal["python", "rust"] = "python") -> str:
        """Review some code.

        Args:
            code: The code.
        """
        return f"Review this {language} code: {code}"


    @prompt
    def talk() -> list[PromptMessage]:
        return [
            PromptMessage("Hello"),
            PromptMessage("Hi", role="assistant"),
            PromptMessage(Image(b"cat", "image/png")),
        ]
'''

Target = tuple[tuple[str, ...], tuple[str, ...]]
"""Words before and after the others of a command."""


@pytest.fixture(params=["python", "server"])
def target(request: pytest.FixtureRequest, directory: Path) -> Target:
    """The same notes, in this process or on a server."""
    (directory / "notes.py").write_text(dedent(NOTES), encoding="utf-8")
    if request.param == "python":
        return ("notes.py",), ()
    return (), ("--", *forks.command("-m", "bridge", "serve", "notes.py"))


class Bridge(Protocol):
    """Runs a command with the target in its place; returns the exit code and both outputs."""

    def __call__(self, command: str, *words: str) -> tuple[int, str, str]: ...


@pytest.fixture
def bridge(run: Run, target: Target) -> Bridge:
    """See `Bridge`."""

    def of_target(command: str, *words: str) -> tuple[int, str, str]:
        before, after = target
        done = run(command, *before, *words, *after)
        return done.returncode, done.stdout, done.stderr

    return of_target


def test_all_kinds_are_listed_for_people(bridge: Bridge) -> None:
    assert bridge("list") == (
        0,
        dedent("""\
        Tools:

          add
            Add two numbers.
              a: integer
              b: integer

        Resources:

          notes://today (Today)  text/markdown
            The notes of today.

          picture://cat (cat)  image/png

          folder://all (folder)

          notes://{day} (of_day)

        Prompts:

          review (Review code)
            Review some code.
              code  The code.
              language: optional

          talk
        """),
        "",
    )


def test_json_lists_each_kind_as_the_protocol_does(bridge: Bridge) -> None:
    code, output, _ = bridge("list", "--json")
    listing = json.loads(output)
    assert code == 0
    assert [tool["name"] for tool in listing["tools"]] == ["add"]
    assert [each["uri"] for each in listing["resources"]] == ["notes://today", "picture://cat", "folder://all"]
    assert listing["resourceTemplates"] == [{"uriTemplate": "notes://{day}", "name": "of_day"}]
    assert listing["prompts"][1] == {"name": "talk"}


def test_a_resource_is_written_unchanged(bridge: Bridge) -> None:
    assert bridge("read", "notes://today") == (0, "buy \x1b[31mmilk", "")
    assert bridge("read", "notes://monday") == (0, "notes of monday", "")


def test_bytes_are_written_unchanged(directory: Path, run: Run, target: Target) -> None:
    before, after = target
    line = shlex.join([sys.executable, "-m", "bridge", "read", *before, "picture://cat", *after])
    done = subprocess.run(["sh", "-c", f"{line} > cat.png"], cwd=directory, timeout=40, check=True)
    assert done.returncode == 0
    assert (directory / "cat.png").read_bytes() == b"\x89PNG\x00\xff"


def test_several_contents_are_written_one_after_another(bridge: Bridge) -> None:
    assert bridge("read", "folder://all") == (0, "onetwo", "[folder://a]\n[folder://b]\n")


def test_json_has_the_whole_result_of_a_read(bridge: Bridge) -> None:
    code, output, _ = bridge("read", "notes://monday", "--output", "json")
    assert (code, json.loads(output)["contents"]) == (
        0,
        [{"uri": "notes://monday", "mimeType": "text/plain", "text": "notes of monday"}],
    )


def test_an_unknown_resource_is_a_wrong_usage(bridge: Bridge) -> None:
    for uri in ("nothing://here", "notes://never", "notes://later"):
        code, output, errors = bridge("read", uri)
        assert (code, output) == (2, "")
        assert f"there is no resource '{uri}'" in errors


def test_a_read_that_fails_has_its_traceback_where_the_function_is(bridge: Bridge, target: Target) -> None:
    code, output, errors = bridge("read", "notes://broken")
    assert (code, output) == (1, "")
    if target[0]:
        assert "RuntimeError: the secret reason" in errors
        assert "notes.py" in errors
    else:
        assert "of_day" in errors


def test_a_uri_is_needed(bridge: Bridge) -> None:
    code, _, errors = bridge("read")
    assert (code, "the URI of a resource is missing" in errors) == (2, True)
    code, _, errors = bridge("read", "a://b", "c://d")
    assert (code, "one URI is expected, not 2" in errors) == (2, True)


def test_one_message_is_written_as_its_text(bridge: Bridge) -> None:
    assert bridge("prompt", "review", "code=1=1") == (0, "Review this python code: 1=1\n", "")
    assert bridge("prompt", "review", "code=x", "language=rust") == (0, "Review this rust code: x\n", "")


def test_several_messages_are_written_with_their_roles(bridge: Bridge) -> None:
    text = "user:\nHello\n\nassistant:\nHi\n\nuser:\n[image/png: 3 bytes, not shown]\n"
    assert bridge("prompt", "talk") == (0, text, "")


def test_json_has_the_whole_result_of_a_prompt(bridge: Bridge) -> None:
    code, output, _ = bridge("prompt", "review", "code=x", "--output", "json")
    assert (code, json.loads(output)) == (
        0,
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Review this python code: x"}}],
            "description": "Review some code.",
        },
    )


def test_a_wrong_prompt_is_a_wrong_usage(bridge: Bridge) -> None:
    code, _, errors = bridge("prompt", "reviw", "code=x")
    assert (code, "there is no prompt 'reviw'; did you mean 'review'?" in errors) == (2, True)
    code, _, errors = bridge("prompt", "xyz")
    assert (code, "there is no prompt 'xyz'; `bridge list` shows the prompts of a target" in errors) == (2, True)
    code, _, errors = bridge("prompt")
    assert (code, "the name of a PROMPT is missing" in errors) == (2, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [((), "code"), (("code=x", "lang=rust"), "lang"), (("code=x", "language=cobol"), "language")],
    ids=["missing", "unknown", "invalid"],
)
def test_wrong_arguments_of_a_prompt_are_refused(bridge: Bridge, words: tuple[str, ...], named: str) -> None:
    code, output, errors = bridge("prompt", "review", *words)
    assert code != 0
    assert output == ""
    assert named in errors
