"""Skills on the command line: of a folder, and of a server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests import forks
from tests.processes import ROOT
from tests.skills.written import instructions, write_skill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.fixture
def folder(directory: Path) -> Path:
    write_skill(directory / "skills", "refunds", {"a.md": "A", "scripts/run.py": "raise SystemExit('imported')"})
    return directory / "skills"


def test_a_folder_of_skills_is_a_target(run: Run, folder: Path) -> None:
    listed = run("list", "skills/")
    assert listed.stdout == "Skills:\n\n  skill://refunds/SKILL.md (3 files, 84 bytes)\n    Do it well\n"
    assert run("read", "skills/", "skill://refunds/a.md").stdout == "A"
    (skill,) = json.loads(run("list", "skills/refunds", "--json").stdout)["skills"]
    assert skill["uri"] == "skill://refunds/SKILL.md"


def test_skills_of_a_server_are_listed_read_pinned_and_examined(run: Run, folder: Path) -> None:
    (folder / "refunds" / "SKILL.md").write_text(instructions("refunds", more="allowed-tools: Bash\n"))
    (folder.parent / "mcp.json").write_text(
        json.dumps({"mcpServers": {"shop": forks.entry("-m", "bridge", "serve", str(folder), cwd=str(ROOT))}})
    )
    assert "skill://refunds/SKILL.md (3 files" in run("list", "mcp.json").stdout
    assert run("read", "mcp.json", "skill://refunds/a.md").stdout == "A"
    assert "1 skill" in run("pin", "mcp.json").stderr
    assert run("pin", "mcp.json", "--check").returncode == 0
    examined = run("doctor", "mcp.json", "--notes")
    assert "skill-asks-for-tools" in examined.stdout
    (folder / "refunds" / "b.md").write_text("new")
    changed = run("pin", "mcp.json", "--check")
    assert changed.returncode == 1
    assert "the skill 'skill://refunds/SKILL.md' has changed: resources" in changed.stdout


def test_a_folder_with_a_malformed_skill_is_refused_with_the_reason(run: Run, folder: Path) -> None:
    (folder / "refunds" / "SKILL.md").write_text("# no frontmatter")
    refused = run("serve", "skills/")
    assert refused.returncode == 2
    assert "must begin with its frontmatter" in refused.stderr
