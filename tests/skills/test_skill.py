from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError
from bridge.errors import WireError
from bridge.skills import Skill, SkillFile, SkillMismatchError
from bridge.skills.skill import digest_of, frontmatter_of
from bridge.wire.skills import directory_to_wire, skill_from_wire, skill_to_wire

DIGEST = digest_of(b"")
ENTRY: dict[str, Any] = {
    "uri": "skill://acme/refunds/SKILL.md",
    "frontmatter": {"name": "refunds", "description": "Refund.", "metadata": {"version": "1.0"}},
    "resources": [
        {"uri": "skill://acme/refunds/SKILL.md", "digest": DIGEST, "size": 0},
        {"uri": "skill://acme/refunds/examples/e%20mail.md", "digest": DIGEST, "size": 0},
    ],
}


def test_an_entry_is_converted_without_loss() -> None:
    assert skill_to_wire(skill_from_wire(ENTRY)) == ENTRY
    dynamic = {**ENTRY, "resources": "dynamic"}
    assert skill_to_wire(skill_from_wire(dynamic)) == dynamic
    assert skill_from_wire(dynamic).files is None


def changed(**members: Any) -> dict[str, Any]:
    return {**ENTRY, **members}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (changed(resources=None), "'resources' of a skill is a list, or 'dynamic'"),
        (changed(resources=[]), "must name each of its files once"),
        (changed(resources=ENTRY["resources"] * 2), "must name each of its files once"),
        (changed(resources=[*ENTRY["resources"], 1]), "a file of a skill is not an object"),
        (changed(frontmatter={"name": "refunds"}), "the description of"),
        (changed(frontmatter={"name": "Refunds", "description": "x"}), "lower-case letters and digits"),
        (changed(frontmatter={"name": "returns", "description": "x"}), "must be that of its folder"),
        (changed(uri="skill://acme/refunds/README.md"), "ends with '/SKILL.md'"),
        (changed(uri="refunds/SKILL.md"), "needs a URI with a scheme"),
    ],
)
def test_a_malformed_entry_is_refused(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises((WireError, DefinitionError), match=problem):
        skill_from_wire(entry)


@pytest.mark.parametrize(
    "uri",
    [
        "skill://acme/other/file",
        "skill://acme/refunds",
        "skill://acme/refunds/../other/file",
        "skill://acme/refunds/%2e%2e/other/file",
        "skill://acme/refunds/a%2F..%2F..%2Fother",
        "skill://acme/refunds//file",
        "file:///etc/passwd",
    ],
)
def test_a_file_outside_of_the_folder_is_refused(uri: str) -> None:
    files = [*ENTRY["resources"], {"uri": uri, "digest": DIGEST, "size": 0}]
    with pytest.raises(DefinitionError, match="a file that is not in its folder"):
        skill_from_wire(changed(resources=files))


@pytest.mark.parametrize("digest", ["sha256:00", "md5:" + "0" * 64, "sha256:" + "A" * 64, ""])
def test_a_malformed_digest_is_refused(digest: str) -> None:
    with pytest.raises(DefinitionError, match="64 hexadecimal digits"):
        SkillFile("skill://x/SKILL.md", digest, 0)


def test_a_skill_has_at_most_512_files_of_16_mib() -> None:
    def of(count: int, size: int) -> Skill:
        files = [SkillFile(f"skill://x/{number}", DIGEST, size) for number in range(count - 1)]
        main = SkillFile("skill://x/SKILL.md", DIGEST, 0)
        return Skill(uri="skill://x/SKILL.md", frontmatter={"name": "x", "description": "x"}, files=(main, *files))

    assert of(512, 32_768).files
    for count, size in ((513, 0), (512, 32_833)):
        with pytest.raises(DefinitionError, match="is too large"):
            of(count, size)


def test_other_bytes_than_those_of_the_entry_are_refused() -> None:
    file = SkillFile("skill://x/SKILL.md", digest_of(b"abc"), 3)
    file.check(b"abc")
    for content, problem in ((b"abd", "another digest"), (b"abcd", "it has 4 bytes, not 3")):
        with pytest.raises(SkillMismatchError, match=problem):
            file.check(content)


def test_frontmatter_is_read_verbatim_with_the_types_of_json() -> None:
    text = (
        b"---\r\nname: x\ndescription: >\n  Two\n  lines\nallowed-tools: Bash\nreleased: 2026-11-23\nyes: no\n---\nbody"
    )
    assert frontmatter_of(text, "x") == {
        "name": "x",
        "description": "Two lines\n",
        "allowed-tools": "Bash",
        "released": "2026-11-23",
        "yes": "no",
    }


@pytest.mark.parametrize("text", [b"", b"# no", b"---\nname: x\n", b"---\n- a\n---\n", b"---\nname: [\n---\n"])
def test_a_file_without_valid_frontmatter_is_refused(text: bytes) -> None:
    with pytest.raises(DefinitionError):
        frontmatter_of(text, "x")


def test_directories_have_their_direct_children() -> None:
    skills = [skill_from_wire(ENTRY)]
    assert directory_to_wire(skills, "skill://acme/refunds") == [
        {"uri": "skill://acme/refunds/SKILL.md", "name": "SKILL.md", "size": 0},
        {"uri": "skill://acme/refunds/examples", "name": "examples", "mimeType": "inode/directory"},
    ]
    assert directory_to_wire(skills, "skill://acme/refunds/examples") == [
        {"uri": "skill://acme/refunds/examples/e%20mail.md", "name": "e mail.md", "size": 0}
    ]
    for uri in ("skill://acme", "skill://acme/refunds/SKILL.md", "skill://acme/refund", "skill://acme/refunds/"):
        assert directory_to_wire(skills, uri) is None
