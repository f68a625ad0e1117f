from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import bridge
from bridge.exports import ROOMS, ROOT, modules_of
from tests.docs.reference import api_modules
from tests.markdown import ROOT as ROOT_FOLDER
from tests.markdown import Document, codes

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTED = set(api_modules())
"""Modules from which programs may import."""

MAX_ROOT_NAMES = 90


def test_the_root_has_few_names_and_each_has_a_use() -> None:
    exports = [export for section in ROOT.values() for export in section]
    assert sorted(bridge.__all__) == sorted(name for name, _, _ in exports)
    assert len(exports) <= MAX_ROOT_NAMES
    assert all(re.fullmatch(r"[A-Z].*\.", use) for _, _, use in exports)


def test_the_names_of_the_three_uses_are_at_the_root() -> None:
    needed = {"tool", "run", "Server", "http_app", "mount", "Gateway", "connect", "McpToolProvider", "ai_service"}
    assert needed <= set(bridge.__all__)


@pytest.mark.parametrize("package", ["bridge", *ROOMS])
def test_each_public_name_is_the_object_of_the_module_that_defines_it(package: str) -> None:
    module = import_module(package)
    for name, home in modules_of(package).items():
        assert getattr(module, name) is getattr(import_module(home), name), name
    defined = [name for name, each in vars(module).items() if getattr(each, "__module__", None) == package]
    assert sorted(modules_of(package)) == sorted(getattr(module, "__all__", defined))


@pytest.mark.parametrize("package", ["bridge", *ROOMS])
def test_no_module_has_the_name_of_a_public_name_of_its_package(package: str) -> None:
    if hasattr(import_module(package), "__path__"):  # an import of the module would replace the name
        assert [name for name in modules_of(package) if find_spec(f"{package}.{name}") is not None] == []


def test_a_name_is_in_one_documented_module_and_perhaps_at_the_root() -> None:
    rooms_of: dict[str, set[tuple[str, str]]] = {}
    for room in ROOMS:
        for name, home in modules_of(room).items():
            rooms_of.setdefault(name, set()).add((room, home))
    several = {name: rooms for name, rooms in rooms_of.items() if len(rooms) > 1}
    assert several.keys() == {"Middleware"}  # of the tools, and listed with the other middleware


def test_an_import_of_a_name_from_the_root_names_the_module_that_has_it() -> None:
    with pytest.raises(ImportError, match=r"'Decision' is not in 'bridge': write from bridge\.service import Decision"):
        exec("from bridge import Decision")
    with pytest.raises(ImportError, match=r"write from bridge\.errors import WireError"):
        _ = getattr(bridge, "WireError")  # noqa: B009 - as below


def test_each_line_of_the_migration_note_is_an_import_that_works() -> None:
    table = Document(ROOT_FOLDER / "docs" / "migration" / "names.md").table("from `bridge`")
    assert len(table) > 100
    for names, line in table:
        imported: dict[str, object] = {}
        exec(line.strip("`"), imported)
        for name in codes(names):
            assert name in imported
            assert name not in bridge.__all__


def test_the_public_names_are_listed_and_a_star_import_gives_them_all() -> None:
    names: dict[str, object] = {}
    exec("from bridge import *", names)
    assert set(bridge.__all__) <= names.keys()
    assert set(bridge.__all__) <= set(dir(bridge))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bridge' has no attribute 'nothing'"):
        _ = getattr(bridge, "nothing")  # noqa: B009 - a type checker would refuse the plain form


@pytest.mark.parametrize(
    ("use", "unwanted"),
    [
        ("pass", r"bridge\.(?!exports$).*"),
        ("bridge.tool, bridge.ToolBox", "mcp|mcp_types|starlette|uvicorn|click|docstring_parser|json_repair"),
    ],
)
def test_what_is_not_used_is_not_loaded(use: str, unwanted: str) -> None:
    program = (
        f"import bridge, re, sys; {use}; print(*[name for name in sys.modules if re.fullmatch({unwanted!r}, name)])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []


def test_the_version_is_that_of_the_distribution() -> None:
    assert bridge.__version__ == version("mcp-toolbridge")
    assert "__version__" in dir(bridge)


def programs() -> Iterator[tuple[str, str]]:
    """Yield each program of the docs and the examples with its name; the Python blocks of a page are one program."""
    for path in sorted((ROOT_FOLDER / "examples").rglob("*.py")):
        yield path.relative_to(ROOT_FOLDER).as_posix(), path.read_text(encoding="utf-8")
    for path in [ROOT_FOLDER / "README.md", *sorted((ROOT_FOLDER / "docs").rglob("*.md"))]:
        blocks = [textwrap.dedent(block.text) for block in Document(path).all_blocks if block.language == "python"]
        yield path.relative_to(ROOT_FOLDER).as_posix(), "\n".join(blocks)


def test_programs_import_from_bridge_and_the_documented_modules_alone() -> None:
    imported = {
        name: {str(node.module) for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)}
        for name, program in programs()
    }
    ours = {name: {each for each in modules if each.split(".")[0] == "bridge"} for name, modules in imported.items()}
    assert {name: modules - DOCUMENTED for name, modules in ours.items() if modules - DOCUMENTED} == {}
    assert ours["docs/services/index.md"] == {"bridge"}


PLAIN = """
import sys
extras = "anthropic boto3 cachetools circuitbreaker httptools openai openapi_pydantic opentelemetry.sdk prompt_toolkit"
for extra in f"{extras} pydantic_monty redis rich tenacity throttled uvloop watchfiles yaml".split():
    sys.modules[extra] = None
import bridge
from bridge import *
import pydoc
assert "from_openapi" in pydoc.render_doc(bridge, renderer=pydoc.plaintext)
assert all(hasattr(bridge, name) for name in bridge.__all__)
try:
    from_openapi({"openapi": "3.1.0"}, ["*"])
except ImportError as error:
    print(error)
"""


def test_without_extras_every_name_can_be_imported_and_a_call_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, timeout=40, check=False)
    missing = "an OpenAPI document needs the package 'openapi-pydantic': pip install 'mcp-toolbridge[openapi]'\n"
    assert (done.stdout, done.stderr) == (missing, "")
