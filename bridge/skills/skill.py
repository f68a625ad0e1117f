"""Skill: what a folder with a ``SKILL.md`` says about itself, and the digests of its files.

Clauses: MCP extension ``io.modelcontextprotocol/skills``, "Skill Entries"; Agent Skills specification, "SKILL.md".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from bridge.errors import DefinitionError, ToolError
from bridge.text import clip, short_repr
from bridge.tools.checks import require_name, require_type
from bridge.tools.decoration import Published
from bridge.tools.specification import require_json
from bridge.yaml_reader import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.types import Json

MAIN_FILE = "SKILL.md"
"""Name of the file with the instructions."""
MAX_FILES = 512
"""Maximum files of one skill."""
MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of the files of one skill."""
DIRECTORY_TYPE = "inode/directory"
"""Media type of a directory."""

_ENDING = f"/{MAIN_FILE}"
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_DESCRIPTION_CHARS = 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FRONTMATTER = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_MAX_FRONTMATTER_BYTES = 64 * 1024


class SkillMismatchError(ToolError):
    """A file differs from what its server has said about the skill, so that its content is not used."""


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill.

    Raises:
        DefinitionError: The digest or the size is malformed.
    """

    uri: str
    digest: str
    """``sha256:`` and the digest of its bytes in hexadecimal digits."""
    size: int
    """Length in bytes."""

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.digest):
            raise DefinitionError(
                f"the digest of {short_repr(self.uri)} is 'sha256:' and 64 hexadecimal digits in lower case, "
                f"not {short_repr(self.digest)}"
            )
        if type(self.size) is not int or self.size < 0:
            raise DefinitionError(f"the size of {short_repr(self.uri)} must be a number of bytes, not {self.size!r}")

    def check(self, content: bytes) -> None:
        """Check that bytes are those of the file.

        Raises:
            SkillMismatchError: They are others.
        """
        if len(content) != self.size:
            found = f"it has {len(content):,} bytes, not {self.size:,}"
        elif digest_of(content) != self.digest:
            found = "it has another digest"
        else:
            return
        raise SkillMismatchError(
            f"the file {clip(self.uri)!r} is not what the skill's entry says: {found}; list the skills again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill(Published):
    """A skill.

    Raises:
        DefinitionError: The URI, the frontmatter or the files violate the specification.
    """

    uri: str
    """URI of its ``SKILL.md``, on its server or local."""
    frontmatter: Mapping[str, Any]
    """All that the author wrote before the instructions. ``allowed-tools`` among it is never honoured."""
    files: tuple[SkillFile, ...] | None = None
    """All files, with ``SKILL.md``; None for a skill whose content is generated, and cannot be verified."""
    source: str = field(default="a skill made by hand", compare=False)
    """Origin, for messages."""
    server: str | None = field(default=None, compare=False)
    """Configured name of the server that it comes from; None if it is served by this process."""
    enabled: bool = True
    """False to hide it."""

    def __post_init__(self) -> None:
        require_name(self.uri, "the URI of a skill")
        what = f"the skill {clip(self.uri)!r}"
        check_frontmatter(self.frontmatter, what)
        if not (urlsplit(self.uri).scheme and self.uri.endswith(_ENDING)):
            raise DefinitionError(f"{what} needs a URI with a scheme that ends with {_ENDING!r}")
        if self.root.rpartition("/")[2] != self.name:
            raise DefinitionError(f"{what} has the name {self.name!r}, which must be that of its folder")
        if self.files is not None:
            self._check_files(self.files, what)

    def _check_files(self, files: tuple[SkillFile, ...], what: str) -> None:
        uris = [each.uri for each in files]
        if outside := [uri for uri in uris if not _is_below(uri, self.root)]:
            raise DefinitionError(f"{what} has a file that is not in its folder: {clip(outside[0])!r}")
        if self.uri not in uris or len(set(uris)) < len(uris):
            raise DefinitionError(f"{what} must name each of its files once, with {MAIN_FILE}")
        if len(files) > MAX_FILES or (total := sum(each.size for each in files)) > MAX_BYTES:
            size = f"{len(files)} files" if len(files) > MAX_FILES else f"{total:,} bytes"
            raise DefinitionError(f"{what} is too large: {size}; at most {MAX_FILES} files and {MAX_BYTES:,} bytes")

    @property
    def name(self) -> str:
        """Name, which several skills may share."""
        name: str = self.frontmatter["name"]
        return name

    @property
    def description(self) -> str:
        """Description for the model."""
        description: str = self.frontmatter["description"]
        return description

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Arbitrary data, of which a skill has none."""
        return {}

    @property
    def root(self) -> str:
        """URI of its folder."""
        return self.uri.removesuffix(_ENDING)

    def file(self, uri: str) -> SkillFile | None:
        """Return a file; None if the skill has no such file, or does not say which it has."""
        return next((each for each in self.files or () if each.uri == uri), None)

    def uri_of(self, path: str) -> str:
        """Return the URI of a file, given by its path in the folder."""
        return f"{self.root}/{quote(path)}"

    def at(self, local: Callable[[str], str]) -> Skill:
        """Return the skill under other URIs; ``local`` returns the other URI for one."""
        files = None if self.files is None else tuple(replace(each, uri=local(each.uri)) for each in self.files)
        return replace(self, uri=local(self.uri), files=files)


def digest_of(content: bytes) -> str:
    """Return the digest of a file."""
    return f"sha256:{sha256(content).hexdigest()}"


def frontmatter_of(content: bytes, source: str) -> Json:
    """Return the frontmatter of a ``SKILL.md``.

    Args:
        content: The bytes of the file.
        source: Its name, for messages.

    Raises:
        DefinitionError: There is none, or it violates the specification.
        MissingExtraError: ``pyyaml`` is not installed.
    """
    found = _FRONTMATTER.match(content)
    if found is None or len(found[1]) > _MAX_FRONTMATTER_BYTES:
        raise DefinitionError(
            f"{source} must begin with its frontmatter: YAML of at most {_MAX_FRONTMATTER_BYTES:,} bytes between two "
            "lines of ---, with name and description"
        )
    frontmatter = read_yaml(found[1], f"the frontmatter of {source}", extra="skills")
    check_frontmatter(frontmatter, source)
    return dict(frontmatter)


def check_frontmatter(frontmatter: Any, what: str) -> None:
    """Check that frontmatter has a name and a description; raises DefinitionError with ``what``."""
    require_type(frontmatter, Mapping, f"the frontmatter of {what}", "a mapping")
    require_json(what, allows_halves=True, frontmatter=dict(frontmatter))
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise DefinitionError(
            f"the name of {what} has 1 to 64 lower-case letters and digits, with single hyphens between them, "
            f"not {short_repr(name)}"
        )
    if not (isinstance(description, str) and 1 <= len(description.strip()) <= _MAX_DESCRIPTION_CHARS):
        raise DefinitionError(
            f"the description of {what} has 1 to {_MAX_DESCRIPTION_CHARS} characters, not {short_repr(description)}"
        )


def _is_below(uri: Any, root: str) -> bool:
    """True for the URI of a file below a folder, whatever dots its path has."""
    if not isinstance(uri, str) or not uri.startswith(f"{root}/"):
        return False
    path = uri[len(root) + 1 :]
    parts = re.split(r"/|%2[fF]", path.replace("%2e", ".").replace("%2E", "."))
    return not any(part in {"", ".", ".."} for part in parts) and not set(path) & set("?#\\")
