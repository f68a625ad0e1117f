"""Servers of npm and PyPI that work without a network, and calls of them whose results are always the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.packages import NPM_VERSION, TOOLBOX_VERSION, npm_package, python_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.types import Json

_EXT_APPS = "2.0.3"
_COMMIT_AT = "2026-01-02T03:04:05+00:00"
_TOOLBOX = """
kind: source
name: file
type: sqlite
database: notes.db
---
kind: tool
name: shout
type: sqlite-sql
source: file
description: Write a text in capitals.
parameters:
  - {name: text, type: string, description: The text.}
statement: SELECT upper(?) AS shouted, 3 AS number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedServer:
    """A server, started in a folder of its own, and its calls."""

    command: Callable[[Path], list[str]]
    """Returns its command line, for its folder; skips the test if it cannot be installed."""
    calls: Callable[[Path], list[tuple[str, Json]]]
    """Returns names of tools with arguments, for its folder."""
    prepare: Callable[[Path], object] = lambda _: None
    """Fills its folder, which is empty."""
    environment: Mapping[str, str] = field(default_factory=dict)


def _npm(package: str, version: str, *arguments: str) -> Callable[[Path], list[str]]:
    def command(folder: Path) -> list[str]:
        installed = npm_package(package, version)
        described = json.loads((installed / "package.json").read_text(encoding="utf-8"))
        program = described.get("bin", described.get("main"))
        first = next(iter(program.values())) if isinstance(program, dict) else program
        words = [argument.replace("{folder}", str(folder)) for argument in arguments]
        return [str(shutil.which("node")), str(installed / first), *words]

    return command


def _pypi(package: str, version: str, program: str = "", *arguments: str) -> Callable[[Path], list[str]]:
    return lambda _: [str(Path(python_with(package, version)).with_name(program or package)), *arguments]


def _steps(*calls: tuple[str, dict[str, Any]]) -> Callable[[Path], list[tuple[str, Json]]]:
    """Return calls, with ``{folder}`` in texts of their arguments."""

    def filled(value: Any, folder: Path) -> Any:
        if isinstance(value, dict):
            return {key: filled(each, folder) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each, folder) for each in value]
        return value.replace("{folder}", str(folder)) if isinstance(value, str) else value

    return lambda folder: [(name, filled(arguments, folder)) for name, arguments in calls]


def _write(**files: str) -> Callable[[Path], object]:
    def prepare(folder: Path) -> None:
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")

    return prepare


def _repository(folder: Path) -> None:
    identity = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in _IDENTITY.items()}
    (folder / "a.txt").write_text("one\n", encoding="utf-8")
    for words in (["init", "-b", "main"], ["add", "a.txt"], ["commit", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=folder, env=os.environ | identity, check=True, capture_output=True)
    (folder / "a.txt").write_text("one\ntwo\n", encoding="utf-8")


def _ext_apps() -> dict[str, RecordedServer]:
    """Return servers of the extension for apps, whose results have structured content."""
    calls: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "budget-allocator": [("get-budget-data", {})],
        "cohort-heatmap": [("get-cohort-data", {"metric": "none"})],
        "customer-segmentation": [("get-customer-data", {"segment": "none"})],
        "scenario-modeler": [("get-scenario-data", {})],
        "sheet-music": [("play-sheet-music", {"abcNotation": "X:1\nK:C\nCDEF|"})],
        "threejs": [("learn_threejs", {}), ("show_threejs_scene", {"height": 200})],
        "transcript": [("transcribe", {})],
        "shadertoy": [("render-shadertoy", {"fragmentShader": "void mainImage(out vec4 c, in vec2 p) {}"})],
    }
    return {
        name: RecordedServer(
            command=_npm(f"@modelcontextprotocol/server-{name}", _EXT_APPS, "--stdio"), calls=_steps(*its)
        )
        for name, its in calls.items()
    }


_IDENTITY = {"NAME": "Ada", "EMAIL": "ada@example.org", "DATE": _COMMIT_AT}
_ADA = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
_BOB = {"name": "Bob", "entityType": "person", "observations": []}
_THOUGHT = {"thought": "begin", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 2}
_CELLS = [["name", "age"], ["Ada", 36]]

SERVERS: dict[str, RecordedServer] = {
    "everything": RecordedServer(
        command=_npm("@modelcontextprotocol/server-everything", NPM_VERSION, "stdio"),
        calls=_steps(
            ("echo", {"message": "grüß"}),
            ("get-sum", {"a": 1, "b": 2}),
            ("get-sum", {"a": "x"}),
            ("get-tiny-image", {}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-resource-links", {"count": 2}),
            ("get-structured-content", {"location": "Chicago"}),
        ),
    ),
    "filesystem": RecordedServer(
        command=_npm("@modelcontextprotocol/server-filesystem", NPM_VERSION, "{folder}"),
        prepare=_write(a_txt="inside"),
        calls=_steps(
            ("list_directory", {"path": "{folder}"}),
            ("read_text_file", {"path": "{folder}/a.txt"}),
            ("write_file", {"path": "{folder}/b.txt", "content": "new\n"}),
            ("edit_file", {"path": "{folder}/b.txt", "edits": [{"oldText": "new", "newText": "old"}], "dryRun": True}),
            ("directory_tree", {"path": "{folder}"}),
            ("read_text_file", {"path": "/etc/hostname"}),
        ),
    ),
    "memory": RecordedServer(
        command=_npm("@modelcontextprotocol/server-memory", NPM_VERSION),
        environment={"MEMORY_FILE_PATH": "{folder}/memory.json"},
        calls=_steps(
            ("create_entities", {"entities": [_ADA, _BOB]}),
            ("create_relations", {"relations": [{"from": "Ada", "to": "Bob", "relationType": "knows"}]}),
            ("search_nodes", {"query": "programs"}),
            ("read_graph", {}),
        ),
    ),
    "sequential-thinking": RecordedServer(
        command=_npm("@modelcontextprotocol/server-sequential-thinking", NPM_VERSION),
        calls=_steps(("sequentialthinking", _THOUGHT), ("sequentialthinking", {"thought": "none"})),
    ),
    "hello-world": RecordedServer(
        command=_npm("mcp-hello-world", "1.1.2"),
        calls=_steps(("echo", {"message": "hi"}), ("add", {"a": 1, "b": 2}), ("add", {"a": "x", "b": 2})),
    ),
    "commands": RecordedServer(
        command=_npm("mcp-server-commands", "0.5.0"),
        calls=_steps(("run_command", {"command": "echo hi"}), ("run_command", {"command": "ls /no/such/folder"})),
    ),
    "code-runner": RecordedServer(
        command=_npm("mcp-server-code-runner", "0.1.8"),
        calls=_steps(
            ("run-code", {"code": "console.log(6 * 7)", "languageId": "javascript"}),
            ("run-code", {"code": "x", "languageId": "klingon"}),
        ),
    ),
    "excel in Go": RecordedServer(
        command=_npm("@negokaz/excel-mcp-server", "0.12.0"),
        calls=_steps(
            (
                "excel_write_to_sheet",
                {"fileAbsolutePath": "{folder}/a.xlsx", "sheetName": "A", "newSheet": True, "range": "A1:B2"}
                | {"values": _CELLS},
            ),
            ("excel_describe_sheets", {"fileAbsolutePath": "{folder}/a.xlsx"}),
            ("excel_describe_sheets", {"fileAbsolutePath": "{folder}/none.xlsx"}),
        ),
    ),
    "primeng": RecordedServer(
        command=_npm("@primeng/mcp", "22.1.1"),
        calls=_steps(
            ("version", {}), ("get_component", {"component": "button"}), ("search", {"query": "table", "limit": 3})
        ),
    ),
    "eslint": RecordedServer(
        command=_npm("@eslint/mcp", "0.3.13"),
        prepare=_write(a_js="var x = 1;\n"),
        calls=_steps(("lint-files", {"filePaths": ["{folder}/a.js"]})),
    ),
    "github": RecordedServer(
        command=_npm("@modelcontextprotocol/server-github", "2025.4.8"),
        calls=_steps(("create_issue", {"owner": "a"}), ("get_issue", {})),
    ),
    **_ext_apps(),
    "time": RecordedServer(
        command=_pypi("mcp-server-time", "2026.10.19"),
        calls=_steps(
            ("convert_time", {"source_timezone": "Asia/Tokyo", "time": "12:30", "target_timezone": "Asia/Kolkata"}),
            ("convert_time", {"source_timezone": "Moon", "time": "12:30", "target_timezone": "Asia/Kolkata"}),
        ),
    ),
    "git": RecordedServer(
        command=_pypi("mcp-server-git", "2026.10.19"),
        prepare=_repository,
        calls=_steps(
            ("git_status", {"repo_path": "{folder}"}),
            ("git_log", {"repo_path": "{folder}"}),
            ("git_diff_unstaged", {"repo_path": "{folder}"}),
            ("git_show", {"repo_path": "{folder}", "revision": "HEAD"}),
            ("git_show", {"repo_path": "{folder}", "revision": "none"}),
        ),
    ),
    "fetch": RecordedServer(
        command=_pypi("mcp-server-fetch", "2026.10.24"),
        calls=_steps(("fetch", {"url": "http://127.0.0.1:9/"}), ("fetch", {"url": "no url"})),
    ),
    "excel": RecordedServer(
        command=_pypi("excel-mcp-server", "2.2.2", "excel-mcp-server", "stdio"),
        calls=_steps(
            ("create_workbook", {"path": "{folder}/a.xlsx", "sheets": ["A", "B"]}),
            ("describe_workbook", {"path": "{folder}/a.xlsx"}),
            ("copy_sheet", {"path": "{folder}/a.xlsx", "sheet": "A", "new_name": "C"}),
            ("describe_sheet", {"path": "{folder}/a.xlsx", "sheet": "none"}),
        ),
    ),
    "calculator": RecordedServer(
        command=_pypi("mcp-server-calculator", "0.2.1"),
        calls=_steps(("calculate", {"expression": "2 + 3 * 4"}), ("calculate", {"expression": "import os"})),
    ),
    "word": RecordedServer(
        command=_pypi("office-word-mcp-server", "1.1.11", "word_mcp_server"),
        calls=_steps(
            ("create_document", {"filename": "{folder}/a.docx", "title": "A"}),
            ("add_paragraph", {"filename": "{folder}/a.docx", "text": "Some words."}),
            ("get_document_text", {"filename": "{folder}/a.docx"}),
            ("get_document_outline", {"filename": "{folder}/none.docx"}),
        ),
    ),
    "shell": RecordedServer(
        command=_pypi("mcp-shell-server", "1.1.14"),
        environment={"ALLOW_COMMANDS": "echo"},
        calls=_steps(
            ("shell_execute", {"command": ["echo", "hi"], "directory": "{folder}"}),
            ("shell_execute", {"command": ["rm", "x"], "directory": "{folder}"}),
        ),
    ),
    "markitdown": RecordedServer(
        command=_pypi("markitdown-mcp", "0.0.1a8"),
        prepare=_write(a_html="<h1>One</h1><p>two <b>three</b></p>"),
        calls=_steps(
            ("convert_to_markdown", {"uri": "file://{folder}/a.html"}),
            ("convert_to_markdown", {"uri": "data:text/plain,hello"}),
            ("convert_to_markdown", {"uri": "file://{folder}/none.html"}),
        ),
    ),
    "libgen in Go": RecordedServer(
        command=_pypi("libgen-mcp", "2.2.1"),
        calls=_steps(("get_details", {}), ("search", {}), ("read", {"path": "{folder}/none.pdf"})),
    ),
    "json-yaml-toml": RecordedServer(
        command=_pypi("mcp-json-yaml-toml", "0.10.2"),
        prepare=_write(a_yaml="a: 1\nb: [2, 3]\n", b_json='{"a": 2}'),
        calls=_steps(
            ("constraint_list", {}),
            ("data_query", {"file_path": "{folder}/a.yaml", "expression": ".b"}),
            ("data_diff", {"file_path1": "{folder}/a.yaml", "file_path2": "{folder}/b.json"}),
            ("data_query", {"file_path": "{folder}/none.yaml", "expression": ".b"}),
        ),
    ),
    "toolbox in Go": RecordedServer(
        command=_pypi("toolbox-server", TOOLBOX_VERSION, "toolbox-server", "--stdio", "--config", "tools.yaml"),
        prepare=_write(tools_yaml=_TOOLBOX),
        calls=_steps(("shout", {"text": "grow"}), ("shout", {})),
    ),
}
"""The servers by name."""
