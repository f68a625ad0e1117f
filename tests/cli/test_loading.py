from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run

TOOL = "from bridge import tool\n@tool\ndef {name}() -> str:\n    return '{text}'\n"


def names_of(listing: str) -> list[str]:
    return [tool["name"] for tool in json.loads(listing)["tools"]]


def test_a_file_is_imported_as_python_would_run_it(run: Run, directory: Path) -> None:
    folder = directory / "folder"
    folder.mkdir()
    (folder / "sibling.py").write_text("GREETING = 'hello'\n")
    (directory / "data.txt").write_text("from the working directory")
    (folder / "whole.py").write_text(
        dedent('''
        from __future__ import annotations

        import pickle
        from dataclasses import dataclass
        from pathlib import Path

        from bridge import tool
        from sibling import GREETING

        DATA = Path("data.txt").read_text()

        @dataclass
        class Point:
            x: int
            y: int = 0

        @tool
        def read(point: Point) -> str:
            """Copy a point by pickling it."""
            copied = pickle.loads(pickle.dumps(point))
            return f"{GREETING} {DATA} {copied} {__name__} {Path(__file__).name}"

        if __name__ == "__main__":
            raise SystemExit("not to be run")
        ''')
    )
    done = run("call", "folder/whole.py", "read", 'point={"x": 1}')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "hello from the working directory Point(x=1, y=0) whole whole.py\n"


@pytest.mark.parametrize("stem", ["json", "mcp", "click", "select", "time", "two-words", "__main__", "1st"])
def test_a_file_may_have_any_name(run: Run, directory: Path, stem: str) -> None:
    (directory / f"{stem}.py").write_text(TOOL.format(name="f", text="reached"))
    done = run("call", f"{stem}.py", "f")
    assert (done.returncode, done.stdout, done.stderr) == (0, "reached\n", "")


def test_a_file_may_even_be_called_bridge(environment: dict[str, str], directory: Path) -> None:
    (directory / "bridge.py").write_text(TOOL.format(name="f", text="reached"))
    command = [str(Path(sys.executable).with_name("bridge")), "call", "bridge.py", "f"]
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=40, check=True
    )
    assert done.stdout == "reached\n"


def test_a_file_behind_a_symbolic_link_finds_its_siblings(run: Run, directory: Path) -> None:
    real = directory / "real"
    real.mkdir()
    (real / "helper.py").write_text("VALUE = 'helped'\n")
    (real / "tools.py").write_text("import helper\n" + TOOL.format(name="f", text="' + helper.VALUE + '"))
    (directory / "linked.py").symlink_to(real / "tools.py")
    assert run("call", "linked.py", "f").stdout == "helped\n"


def test_a_directory_has_the_tools_of_all_its_files(run: Run, directory: Path) -> None:
    folder = directory / "tools"
    folder.mkdir()
    (folder / "b.py").write_text("from helper import NAME\n" + TOOL.format(name="second", text="b"))
    (folder / "a.py").write_text(TOOL.format(name="first", text="a"))
    (folder / "helper.py").write_text("NAME = 'no tools in here'\n")
    (folder / "c.py").write_text("from a import first\n")
    for name in ("_draft", "test_a", "a_test", "conftest"):
        (folder / f"{name}.py").write_text("raise SystemExit('never imported')\n")
    for target in ("tools/", "tools"):
        assert names_of(run("list", target, "--json").stdout) == ["first", "second"]
    done = run("list", "./tools:first")
    assert (done.returncode, done.stderr) == (2, "bridge: './tools' is a directory; name a file in it\n")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "it has no Python file with a function decorated with @bridge.tool"),
        ({"a.py": "", "b.py": ""}, "none of its 2 Python files has a function decorated with @bridge.tool"),
    ],
)
def test_a_directory_without_tools_is_one_line_and_code_2(
    run: Run, directory: Path, files: dict[str, str], reason: str
) -> None:
    folder = directory / "tools"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    done = run("list", "tools/")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bridge: {folder} has no tools: {reason}\n")


def test_a_module_is_found_from_the_working_directory(run: Run, directory: Path) -> None:
    package = directory / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 'relative'\n")
    (package / "module.py").write_text("from .words import WORD\n" + TOOL.format(name="f", text="' + WORD + '"))
    assert run("call", "package.module", "f").stdout == "relative\n"


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("many.py", ["one", "method"]),
        ("many.py:one", ["one"]),
        ("many.py:plain", ["plain"]),
        ("many.py:instance", ["method"]),
        ("many.py:instance.method", ["method"]),
        ("many.py:together", ["one", "plain"]),
        ("many.py:Static", ["static"]),
        ("many:one", ["one"]),
        ("box.py", ["two"]),
        ("box.py:box", ["two"]),
        ("box.py:outside", ["outside"]),
    ],
)
def test_an_object_of_a_file_can_be_named(run: Run, directory: Path, target: str, names: list[str]) -> None:
    (directory / "many.py").write_text(
        dedent("""
        from bridge import tool

        @tool
        def one() -> int:
            return 1

        def plain() -> int:
            return 2

        class Methods:
            @tool
            def method(self) -> int:
                return 3

        class Static:
            @tool
            @staticmethod
            def static() -> int:
                return 4

        instance = Methods()
        together = [one, plain]
        """)
    )
    (directory / "box.py").write_text(
        "from bridge import ToolBox, tool\ndef two() -> int:\n    return 2\nbox = ToolBox(two)\nsame = box\n"
        "@tool\ndef outside() -> int:\n    return 3\n"
    )
    done = run("list", target, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert names_of(done.stdout) == names


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "{file} has no tools: decorate a function with @bridge.tool"),
        (
            "from bridge import tool\nclass Shop:\n    @tool\n    def buy(self) -> int: ...\n",
            (
                "{file} has no tools: its class 'Shop' has tools, but needs an instance at module level, "
                "such as tools = Shop(…)"
            ),
        ),
        (
            "from json import dumps\ndef _own() -> int: ...\ndef add(a: int) -> int: ...\n",
            "{file} has no tools: decorate a function with @bridge.tool, or name an undecorated one: {file}:add",
        ),
        ("from bridge import ToolBox\nbox = ToolBox()\n", "{file} has no tools: decorate a function with @bridge.tool"),
        (
            "from bridge import ToolBox\na = ToolBox()\nb = ToolBox()\n",
            "{file} has several ToolBoxes; name one: {file}:a or {file}:b",
        ),
        (
            "from bridge import tool\n@tool\ndef f(*rest: int) -> int: ...\n",
            (
                "the parameter 'rest' of function 'f' (broken.py:2) takes any number of values (*args); "
                "give it a list parameter instead"
            ),
        ),
        (
            "from bridge import Server\nbuy = Server(name='a')\nsell = Server(name='b')\n",
            "{file} has several servers; name one: {file}:buy or {file}:sell",
        ),
        ("from bridge.errors import TargetError\nraise TargetError('set SHOP_KEY')\n", "set SHOP_KEY"),
    ],
)
def test_a_file_without_usable_tools_is_one_line_and_code_2(
    run: Run, directory: Path, source: str, message: str
) -> None:
    file = directory / "broken.py"
    file.write_text(source)
    done = run("list", "broken.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bridge: {message.format(file=file)}\n"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("calculator.py:nothing", "{directory}/calculator.py has no object 'nothing'"),
        ("calculator.py:ad", "{directory}/calculator.py has no object 'ad'; did you mean 'add'?"),
        ("calculator.py:add.nothing", "{directory}/calculator.py has no object 'add.nothing'"),
        (
            "web.py:app",
            (
                "{directory}/web.py:app is a Starlette application, whose routes are not tools: name its server, "
                "{directory}/web.py:notes, or run it by an ASGI server such as uvicorn, and name its URL"
            ),
        ),
        (
            "page.py",
            (
                "{directory}/page.py has no tools: it contains a Starlette application, whose routes are not tools: "
                "name the functions that it serves, or run it by an ASGI server such as uvicorn, and name its URL"
            ),
        ),
        ("calculater", "there is no module 'calculater'; did you mean 'calculator.py'?"),
        ("calculator.tools", "there is no module 'calculator.tools'; did you mean 'calculator.py'?"),
        ("json.nothing", "there is no module 'json.nothing'"),
        (
            "folder",
            "{directory}/folder has no tools: it has no Python file with a function decorated with @bridge.tool",
        ),
        ("folder.inner", "'folder.inner' is a directory: write folder/inner/, or name a file in it"),
        (
            "shop.py:Shop",
            (
                "{directory}/shop.py:Shop is a class whose tools need an instance: "
                "write shop = Shop(…) at module level, and name {directory}/shop.py:shop"
            ),
        ),
        ("missing.py", "there is no file 'missing.py' (looked for {directory}/missing.py)"),
    ],
)
def test_a_target_that_cannot_be_used_is_one_line_and_code_2(
    run: Run, directory: Path, target: str, message: str
) -> None:
    (directory / "folder" / "inner").mkdir(parents=True)
    (directory / "shop.py").write_text(
        "from bridge import tool\nclass Shop:\n    @tool\n    def buy(self) -> int: ...\n"
    )
    (directory / "page.py").write_text("from starlette.applications import Starlette\npage = Starlette()\n")
    (directory / "web.py").write_text(
        "from bridge.server import Server, http_app\nfrom calculator import add\n"
        "notes = Server(add, name='notes')\napp = http_app(notes)\n"
    )
    done = run("list", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.removeprefix("printed at import\n") == f"bridge: {message.format(directory=directory)}\n"


def test_a_file_that_raises_shows_the_users_frames_alone(run: Run, directory: Path) -> None:
    (directory / "helper.py").write_text("def help():\n    return undefined\n")
    file = directory / "broken.py"
    file.write_text("import helper\n\nhelper.help()\n")
    done = run("list", "broken.py")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        f"bridge: importing {file} failed: NameError: name 'undefined' is not defined ({directory}/helper.py, line 2)",
        "Traceback (most recent call last):",
    ]
    frames = [line.strip() for line in lines if line.startswith("  File ")]
    assert frames == [
        f'File "{file}", line 3, in <module>',
        f'File "{directory}/helper.py", line 2, in help',
    ]
    assert lines[-1] == "NameError: name 'undefined' is not defined"


@pytest.mark.parametrize(
    ("source", "reason", "line"),
    [
        ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax", 2),
        ("import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it'", 1),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3", 2),
        ("from bridge import tool\n\ntool('text')(5)\n", "DefinitionError: 5 cannot be a tool;", 3),
        ("raise ValueError('first\\nsecond')\n", "ValueError: first", 1),
        (
            "import bridge\n@bridge.tool\ndef one() -> int:\n    return 1\n\nbridge.run(one)\n",
            "DefinitionError: bridge.run would serve",
            6,
        ),
    ],
)
def test_whatever_a_file_raises_is_told_with_its_place(
    run: Run, directory: Path, source: str, reason: str, line: int
) -> None:
    file = directory / "broken.py"
    file.write_text(source)
    done = run("list", "broken.py")
    first = done.stderr.splitlines()[0]
    assert (done.returncode, done.stdout) == (1, "")
    assert first.startswith(f"bridge: importing {file} failed: {reason}")
    assert first.endswith(f"({file}, line {line})")
    assert f'File "{file}", line {line}' in done.stderr
    for ours in ("/bridge/", "importlib", "runpy", "click"):
        assert ours not in done.stderr


@pytest.mark.parametrize("line", ["json.loads('{')", "ast.parse('(')", "TypeAdapter(int).validate_python('x')"])
def test_an_error_inside_a_library_is_reported_where_the_users_code_called_it(
    run: Run, directory: Path, line: str
) -> None:
    file = directory / "calling.py"
    file.write_text(f"import ast, json\nfrom pydantic import TypeAdapter\n\n{line}\n")
    done = run("list", str(file))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f"({file}, line 4)")


def test_a_cause_keeps_its_own_frames(run: Run, directory: Path) -> None:
    file = directory / "broken.py"
    file.write_text("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('no') from error\n")
    stderr = run("list", "broken.py").stderr
    assert "ZeroDivisionError: division by zero" in stderr
    assert "The above exception was the direct cause" in stderr
    assert "/bridge/" not in stderr


def test_where_no_target_is_named_the_default_ones_that_exist_are_served(run: Run, directory: Path) -> None:
    (directory / "tools").mkdir()
    (directory / "tools" / "a.py").write_text(TOOL.format(name="first", text="a"))
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    done = run("serve", "--default-targets", "nothing.json#one,tools/", stdin=json.dumps(initialize) + "\n")
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "tools"


def test_where_nothing_is_named_and_no_default_exists_that_is_said(run: Run) -> None:
    done = run("serve", "--default-targets", "/nowhere/tools,/nowhere/mcp.json")
    assert done.returncode == 2
    assert "a TARGET is missing, such as tools.py, and there is no /nowhere/tools and no /nowhere/mcp.json" in (
        " ".join(done.stderr.split())
    )
