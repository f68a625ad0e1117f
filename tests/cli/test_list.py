from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from hypothesis import given

from bridge.cli.list import described
from bridge.cli.list.parameters import FULL
from bridge.tools.specification import ToolSpecification
from tests import forks
from tests.cli.pseudo_terminal import Terminal
from tests.cli.schemas import JSON_SCHEMA_LIKE
from tests.client.scripted import listed, scripted_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_tools_are_listed_for_people(run: Run) -> None:
    done = run("list", "calculator.py:add")
    assert (done.returncode, done.stderr) == (0, "printed at import\n")
    assert done.stdout == dedent("""\
        add (Addition)
          Add two numbers.
            a: integer  The first.
            b: integer, optional, default 2  The second.
        """)


def test_every_kind_of_parameter_is_described(run: Run, directory: Path) -> None:
    (directory / "kinds.py").write_text(
        dedent('''
        from dataclasses import dataclass
        from enum import Enum
        from typing import Literal
        from bridge import tool

        class Colour(Enum):
            RED = "red"
            BLUE = "blue"

        @dataclass
        class Point:
            x: int

        @tool
        def plot(at: Point, tags: list[str], size: int | None, mode: Literal["a", "b"], colour: Colour, free=5):
            """Plot.
            """
        ''')
    )
    done = run("list", "kinds.py")
    assert done.returncode == 0
    assert done.stdout == dedent("""\
        plot
          Plot.
            at: Point
              x: integer
            tags: array of string
            size: integer or null
            mode: "a" or "b"
            colour: "red" or "blue"
            free: any, optional, default 5
        """)


def test_json_has_all_that_a_server_lists(run: Run) -> None:
    done = run("list", "calculator.py", "--json")
    listing = json.loads(done.stdout)
    assert [*listing] == ["tools", "resources", "resourceTemplates", "prompts", "skills", "events"]
    assert [listing[each] for each in [*listing][1:]] == [[], [], [], [], []]
    tools = listing["tools"]
    assert [tool["name"] for tool in tools] == ["add", "shout", "divide", "crash"]
    assert tools[0] == {
        "name": "add",
        "title": "Addition",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "description": "The second.", "default": 2},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
    }


def test_what_is_not_ascii_is_written_as_utf_8_whatever_the_locale(run: Run, directory: Path) -> None:
    (directory / "words.py").write_text(
        "from bridge import tool\n@tool('Größe: 木')\ndef f() -> str:\n    return '木'\n", encoding="utf-8"
    )
    assert "Größe: 木" in run("list", "words.py", env={"LC_ALL": "C", "PYTHONUTF8": "0"}).stdout
    assert run("call", "words.py", "f", env={"LC_ALL": "C", "PYTHONUTF8": "0"}).stdout == "木\n"


@given(JSON_SCHEMA_LIKE)
def test_whatever_a_schema_says_each_parameter_is_one_line_and_its_fields_are_indented(schema: dict[str, Any]) -> None:
    parameters = schema["properties"] if isinstance(schema["properties"], dict) else {}
    told = described(ToolSpecification(name="f", parameters=schema))
    own = [line for line in told.splitlines()[1:] if line.startswith("    ") and line[4:5] != " "]
    assert len(own) == len(parameters)


def test_a_schema_that_its_server_has_written_wrong_says_nothing(run: Run) -> None:
    wrong = {"type": "object", "properties": {"a": {"anyOf": 5}, "b": {"type": 5, "enum": 5}}}
    done = run("list", "--", *scripted_command([listed("f", inputSchema=wrong)]))
    assert (done.returncode, done.stdout, done.stderr) == (0, "f\n    a: any, optional\n    b: any, optional\n", "")


def test_a_schema_of_any_depth_is_described() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    told = described(ToolSpecification(name="f", parameters={"properties": {"a": schema}}))
    assert told.endswith("array of any, optional")


def test_the_working_directory_is_a_target(run: Run, directory: Path) -> None:
    done = run("list", ".")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run("list", "calculator.py").stdout
    (directory / "calculator.py").unlink()
    (directory / "mcp.json").write_text("{}")
    done = run("list", ".")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bridge: {directory} has no tools: it has no Python file with a function decorated")
    assert done.stderr.endswith(f"; for the servers of its configuration, name {directory / 'mcp.json'}\n")


NESTED = '''
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from bridge import tool

class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9

class Dog(BaseModel):
    kind: Literal["dog"]
    owner: Person

class Person(BaseModel):
    name: str = Field(description="Full\\x1b[2J name.")
    friends: list[Person] = []

@tool
def adopt(pet: Cat | Dog, by: list[Person], letter: Literal["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]) -> str:
    """Adopt."""
    return ""
'''


def test_fields_of_nested_parameters_are_shown_and_recursion_ends(run: Run, directory: Path) -> None:
    (directory / "nested.py").write_text(NESTED, encoding="utf-8")
    assert run("list", "nested.py").stdout == dedent("""\
        adopt
          Adopt.
            pet: Cat or Dog
              Cat:
                kind: "cat"
                lives: integer, optional, default 9
              Dog:
                kind: "dog"
                owner: Person
                  …
            by: array of Person
              name: string  Full\\x1b[2J name.
              friends: array of Person, optional, default []
            letter: "a" or "b" or "c" or "d" or "e" or "f" or "g" or "h" or 2 others
        """)
    full = run("list", "nested.py", "--full").stdout
    assert '"h" or "i" or "j"' in full
    assert "owner: Person\n          name: string" in full


def test_references_that_multiply_are_described_in_bounded_time() -> None:
    definitions: dict[str, Any] = {
        f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 50, "properties": {"x": {"$ref": "#/$defs/a0"}}}
        for level in range(12)
    }
    parameters = {"type": "object", "properties": {"p": {"$ref": "#/$defs/a0"}}, "$defs": definitions}
    assert described(ToolSpecification(name="f", parameters=parameters), FULL).startswith("f\n    p: any, optional")


def test_names_are_bold_and_foreign_text_is_escaped_on_a_terminal(directory: Path) -> None:
    (directory / "nested.py").write_text(NESTED, encoding="utf-8")
    terminal = Terminal("list", "nested.py", cwd=directory)
    assert terminal.ended() == 0
    assert "\x1b[1madopt\x1b[0m" in terminal.raw
    assert r"Full\x1b[2J name." in terminal.raw
    assert "\x1b[2J" not in terminal.raw
    terminal = Terminal("list", "nested.py", cwd=directory, env={"NO_COLOR": "1"})
    assert terminal.ended() == 0
    assert "\x1b" not in terminal.raw.replace("\\x1b", "")


def test_what_definitions_cost_is_listed_by_tool_and_server(run: Run, directory: Path) -> None:
    done = run("list", "calculator.py", "--tokens")
    *tools, total = done.stdout.splitlines()
    assert total.split()[1:] == ["4", "tools,", "estimated", "tokens"]
    numbers = [int(line.split()[0]) for line in tools]
    assert numbers == sorted(numbers, reverse=True)
    assert int(total.split()[0]) == sum(numbers) > 100
    entry = forks.entry("-m", "bridge", "serve", "calculator.py", cwd=str(directory))
    (directory / "two.json").write_text(json.dumps({"mcpServers": {"one": entry, "two": entry}}))
    found = json.loads(run("list", "two.json", "--tokens", "--json").stdout)
    assert found["servers"].keys() == {"one", "two"}
    assert found["estimatedTokens"] == sum(found["servers"].values())
    assert {each["server"] for each in found["tools"]} == {"one", "two"}
    assert "tools of two" in run("list", "two.json", "--tokens").stdout
    assert run("list", "calculator.py", "--tokens", "--full").returncode == 2


def test_the_brief_list_has_a_line_for_each(run: Run) -> None:
    done = run("list", "--brief", "calculator.py")
    assert done.stdout == dedent("""\
        add a [b]           Add two numbers.
        shout text [times]  Say it loudly.
        divide a b          Divide.
        crash               Raise.
        """)


def test_the_brief_list_has_headings_for_other_kinds_and_cuts_long_descriptions(run: Run, directory: Path) -> None:
    (directory / "kinds.py").write_text(
        dedent(f'''
        from bridge import prompt, resource, tool

        @tool
        def look(at: str) -> str:
            """Look. And then tell."""

        @resource("notes://today")
        def today() -> str:
            """{"x" * 200}"""

        @prompt
        def ask(question: str) -> str:
            """Ask."""
        '''),
        encoding="utf-8",
    )
    done = run("list", "--brief", "kinds.py")
    assert done.stdout == dedent(f"""\
        Tools:
          look at  Look.

        Resources:
          notes://today  {"x" * 100}…

        Prompts:
          ask question  Ask.
        """)
    both = run("list", "--brief", "--full", "kinds.py")
    assert (both.returncode, "--brief and --full exclude each other" in both.stderr) == (2, True)


def test_a_message_is_broken_between_words_on_a_narrow_terminal(directory: Path) -> None:
    terminal = Terminal("list", "no-such-file-of-tools.py", cwd=directory, size=(40, 40))
    assert terminal.ended() == 2
    assert terminal.seen.splitlines()[:2] == ["bridge: there is no file", "    'no-such-file-of-tools.py' (looked"]
