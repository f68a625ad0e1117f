from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bridge import DefinitionError
from bridge.errors import ResourceNotFoundError
from bridge.skills import SkillMismatchError, skills_in
from bridge.skills.skill import MAX_FILES, digest_of
from tests.skills.written import instructions, write_skill

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


async def test_each_folder_with_instructions_is_a_skill_with_all_files_below_it(tmp_path: Path) -> None:
    write_skill(tmp_path, "refunds", {"examples/e mail.md": "Dear", "logo.png": b"\x89\xff", ".hidden": "x"})
    write_skill(tmp_path, "acme/billing/inner")
    write_skill(tmp_path, "outer", {"nested/SKILL.md": instructions("nested"), "__pycache__/a.pyc": "x"})
    skills = skills_in(tmp_path)
    found = {skill.uri: [each.uri for each in skill.files or ()] for skill in await skills.list()}
    assert found == {
        "skill://acme/billing/inner/SKILL.md": ["skill://acme/billing/inner/SKILL.md"],
        "skill://outer/SKILL.md": ["skill://outer/SKILL.md", "skill://outer/nested/SKILL.md"],
        "skill://outer/nested/SKILL.md": ["skill://outer/nested/SKILL.md"],
        "skill://refunds/SKILL.md": [
            "skill://refunds/SKILL.md",
            "skill://refunds/examples/e%20mail.md",
            "skill://refunds/logo.png",
        ],
    }
    refunds = (await skills.list())[-1]
    assert (refunds.name, refunds.description) == ("refunds", "Do it well")
    assert refunds.files is not None
    assert (refunds.files[1].digest, refunds.files[1].size) == (digest_of(b"Dear"), 4)
    assert (await skills.read(refunds, "skill://refunds/examples/e%20mail.md")).content == "Dear"
    assert (await skills.read(refunds, "skill://refunds/logo.png")).content == b"\x89\xff"
    assert (await skills.read(refunds)).mime_type == "text/markdown"


async def test_a_folder_that_is_a_skill_itself_has_its_own_name_and_a_prefix_comes_before(tmp_path: Path) -> None:
    folder = write_skill(tmp_path, "refunds")
    assert [skill.uri for skill in await skills_in(folder).list()] == ["skill://refunds/SKILL.md"]
    (skill,) = await skills_in(tmp_path, prefix="acme/billing").list()
    assert skill.uri == "skill://acme/billing/refunds/SKILL.md"
    with pytest.raises(DefinitionError, match="a path without dots"):
        skills_in(tmp_path, prefix="../x")


async def test_only_the_instructions_are_listed_as_resources_and_other_uris_do_not_exist(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "refunds", {"a.md": "A"})
    (tmp_path / "secret.txt").write_text("secret")
    skills = skills_in(tmp_path / "skills")
    assert skills.box is not None
    assert [each.uri for each in skills.box.resources] == ["skill://refunds/SKILL.md"]
    assert skills.box.find("skill://refunds/a.md") is not None
    for uri in (
        "skill://refunds/../../secret.txt",
        "skill://refunds/%2e%2e/%2e%2e/secret.txt",
        "skill://refunds/b.md",
        "file:///etc/passwd",
    ):
        assert skills.box.find(uri) is None
    (skill,) = await skills.list()
    with pytest.raises(SkillMismatchError, match="has no file"):
        await skills.read(skill, "skill://refunds/../../secret.txt")


@pytest.mark.parametrize("kind", ["outside", "inside", "folder", "hard"])
def test_links_are_refused(kind: str, tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills", "refunds", {"a.md": "A"})
    (tmp_path / "secret").mkdir()
    secret = tmp_path / "secret" / "key.txt"
    secret.write_text("secret")
    if kind == "hard":
        os.link(secret, folder / "key.txt")
    else:
        targets = {"outside": secret, "inside": folder / "a.md", "folder": secret.parent}
        (folder / "key.txt").symlink_to(targets[kind])
    with pytest.raises(DefinitionError, match=r"'refunds/key\.txt' (is a link|has another hard link)"):
        skills_in(tmp_path / "skills")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"SKILL.md": "# nothing"}, "must begin with its frontmatter"),
        ({"SKILL.md": instructions("other")}, "must be that of its folder"),
        ({str(number): "" for number in range(MAX_FILES)}, "more than 512 files"),
        ({"large": b"x" * (16 * 1024 * 1024)}, "more than 16,777,216 bytes"),
    ],
)
def test_a_skill_that_is_not_valid_is_refused_with_its_folder(
    files: dict[str, str | bytes], problem: str, tmp_path: Path
) -> None:
    write_skill(tmp_path, "refunds", files)
    with pytest.raises(DefinitionError, match=problem) as refused:
        skills_in(tmp_path)
    assert "refunds" in str(refused.value)


def test_a_folder_without_skills_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="has no skill"):
        skills_in(tmp_path)
    with pytest.raises(DefinitionError, match="is not a folder"):
        skills_in(tmp_path / "missing")


async def test_changes_of_files_apply_and_what_was_listed_before_is_not_mistaken_for_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_skill(tmp_path, "refunds", {"a.md": "A"})
    skills = skills_in(tmp_path, rescan_seconds=0)
    assert skills.box is not None
    (before,) = await skills.list()
    (folder / "a.md").write_text("another A")
    write_skill(tmp_path, "returns")
    found = skills.box.find("skill://refunds/a.md")
    assert found is not None
    with pytest.raises(SkillMismatchError, match="it has 9 bytes, not 1"):
        await skills.read(before, "skill://refunds/a.md")
    after, returns = await skills.list()
    assert (await skills.read(after, "skill://refunds/a.md")).content == "another A"
    assert [each.uri for each in skills.box.resources] == [after.uri, returns.uri]
    (folder / "a.md").unlink()
    with pytest.raises(ResourceNotFoundError):
        await skills.read(after, "skill://refunds/a.md")
    (tmp_path / "returns" / "SKILL.md").write_text("# no frontmatter")
    assert [skill.name for skill in await skills.list()] == ["refunds"]
    assert "left out the skill in" in caplog.text
