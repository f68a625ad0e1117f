"""Skills of a folder: each folder in it with a ``SKILL.md``, at any depth, with all files below it.

Files are found and read as by `bridge.Folder`: links and files with several hard links are refused, and so is every
path that leads out of the folder. Hidden files, whose names begin with a dot, do not exist.
"""

from __future__ import annotations

import logging
import mimetypes
import os
import stat
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote

from anyio import to_thread

from bridge.errors import DefinitionError, ResourceNotFoundError, ToolError
from bridge.resources.box import Readable, ResourceBox
from bridge.resources.folder import Folder
from bridge.resources.resource import BINARY, Resource
from bridge.skills.skill import MAIN_FILE, MAX_BYTES, MAX_FILES, Skill, SkillFile, digest_of, frontmatter_of
from bridge.skills.source import Skills
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.content import File

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bridge.tools.context import InvocationContext

RESCAN_SECONDS = 1.0
"""Default seconds for which a list of the files is taken for current."""
_MARKDOWN = "text/markdown"
_UNPUBLISHED = frozenset({"__pycache__"})
_logger = logging.getLogger("bridge.skills")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A file in the folder."""

    path: str
    signature: tuple[int, int, int]
    """Its size, time of change and inode."""
    problem: str | None
    """Reason why it is refused; None for a file that may be read."""


class FolderSkills(Skills):
    """The skills of a folder, which is examined again when they are listed; made by `skills_in`."""

    def __init__(self, folder: Path, prefix: str, rescan_seconds: float) -> None:
        self._folder = folder
        self._prefix = prefix
        self._rescan_seconds = rescan_seconds
        self._lock = Lock()
        self._digests: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._paths: Mapping[str, str] = {}
        self._names: Mapping[str, str] = {}
        self._skills: tuple[Skill, ...] = ()
        self._scanned_at = 0.0
        self._resources = _SkillResources(self)
        self.box = self._resources
        """The files as resources. The instructions are listed; the other files are found by their URIs."""
        self._scan(is_first=True)

    @property
    def current(self) -> tuple[Skill, ...]:
        """The skills, as the folder was examined last."""
        return self._skills

    def may_show(self, shows: Callable[[Skill], bool]) -> bool:
        """Return True if one of the skills is shown, as the folder was examined last."""
        return any(map(shows, self._skills))

    async def list(self, context: InvocationContext | None = None) -> tuple[Skill, ...]:  # noqa: ARG002 - all see the same
        """Return the skills, after the folder was examined again if that is some time ago."""
        if monotonic() - self._scanned_at >= self._rescan_seconds:
            await to_thread.run_sync(self._scan)
        return self._skills

    def name_of(self, uri: str) -> str | None:
        """Return the name of the skill that a file belongs to, the innermost; None if there is no such file."""
        return self._names.get(uri)

    async def content_of(self, uri: str) -> bytes:
        """Read a file, whose digest is that of its current skill.

        Raises:
            ResourceNotFoundError: There is no such file.
            ToolError: It changes while it is read.
        """
        for _ in range(2):
            path = self._paths.get(uri)
            try:
                content = None if path is None else await to_thread.run_sync(self._read, path)
            except (OSError, ToolError):
                content = None
            if path is not None and content is not None and self._digests[path][1] == digest_of(content):
                return content
            await to_thread.run_sync(self._scan)
        if uri not in self._paths:
            raise ResourceNotFoundError(uri)
        raise ToolError(f"the file {uri!r} is being changed; read it again")

    def _read(self, path: str) -> bytes:
        with closing(Folder(self._folder)) as folder, folder.opened_file(path) as file:
            return _content_of(file)

    def _scan(self, *, is_first: bool = False) -> None:
        """Examine the folder; a skill that is not valid raises at first, and is left out and logged later."""
        with self._lock, closing(Folder(self._folder)) as folder:
            stored = {each.path: each for each in _stored_in(folder)}
            roots = [
                path.removesuffix(MAIN_FILE).rstrip("/") for path in stored if PurePosixPath(path).name == MAIN_FILE
            ]
            if is_first and not roots:
                raise DefinitionError(f"{str(self._folder)!r} has no skill: no folder in it has a {MAIN_FILE}")
            skills: list[Skill] = []
            for root in sorted(roots):
                try:
                    skills.append(self._skill(folder, root, stored))
                except (DefinitionError, ToolError, OSError) as error:
                    if is_first:
                        raise DefinitionError(f"the skill in {str(self._folder / root)!r}: {error}") from error
                    _logger.warning("left out the skill in %r: %s", str(self._folder / root), error)
            self._digests = {path: each for path, each in self._digests.items() if path in stored}
            self._take(skills)
            self._scanned_at = monotonic()

    def _take(self, skills: Sequence[Skill]) -> None:
        by_uri = {self._uri(path): path for path in self._digests}
        self._paths = {each.uri: by_uri[each.uri] for skill in skills for each in skill.files or ()}
        # An inner skill comes later, so that its files have its name.
        self._names = {each.uri: skill.name for skill in skills for each in skill.files or ()}
        self._skills = tuple(skills)
        self._resources.replace([self._resources.made(skill.uri, skill.name, skill.description) for skill in skills])

    def _skill(self, folder: Folder, root: str, stored: Mapping[str, _Stored]) -> Skill:
        beginning = f"{root}/" if root else ""
        files = [each for path, each in stored.items() if path.startswith(beginning)]
        for each in files:
            if each.problem is not None:
                raise DefinitionError(f"{each.path!r} {each.problem}")
        if len(files) > MAX_FILES or sum(each.signature[0] for each in files) > MAX_BYTES:
            raise DefinitionError(f"it has more than {MAX_FILES} files, or more than {MAX_BYTES:,} bytes")
        entries = tuple(SkillFile(self._uri(each.path), *self._digest(folder, each)) for each in files)
        with folder.opened_file(main := beginning + MAIN_FILE) as file:
            frontmatter = frontmatter_of(_content_of(file), repr(main))
        source = f"skill in {str(self._folder / root)!r}"
        return Skill(uri=self._uri(main), frontmatter=frontmatter, files=entries, source=source)

    def _digest(self, folder: Folder, file: _Stored) -> tuple[str, int]:
        known = self._digests.get(file.path)
        if known is None or known[0] != file.signature:
            with folder.opened_file(file.path) as opened:
                content = _content_of(opened)
            if len(content) != file.signature[0]:
                raise DefinitionError(f"{file.path!r} is being changed")
            known = self._digests[file.path] = (file.signature, digest_of(content))
        return known[1], file.signature[0]

    def _uri(self, path: str) -> str:
        # A folder that is itself a skill is named in the URI, as every other one.
        within = path if not self._is_skill else f"{self._folder.name}/{path}"
        return f"skill://{self._prefix}{quote(within)}"

    @property
    def _is_skill(self) -> bool:
        return (self._folder / MAIN_FILE).is_file()


class _SkillResources(ResourceBox):
    """The files of skills, of which only the instructions are listed."""

    def __init__(self, skills: FolderSkills) -> None:
        super().__init__()
        self._skills = skills

    def find(self, uri: str) -> Readable | None:
        """Return what reads a file; None if there is no such file."""
        if (found := super().find(uri)) is not None:
            return found
        if (name := self._skills.name_of(uri)) is None:
            return None
        resource = self.made(uri, name, None)
        return Readable(resource, resource.tool, {})

    def made(self, uri: str, name: str, description: str | None) -> Resource:
        """Return a file as a resource, whose name is that of its skill."""
        return Resource(
            uri=uri,
            name=name,
            description=description,
            mime_type=_type_of(uri),
            reader=_Reader(self._skills),
            source="the skills of a folder",
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """Reads files of skills."""

    skills: FolderSkills

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reader) and other.skills is self.skills

    def __hash__(self) -> int:
        return hash(id(self.skills))

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:  # noqa: ARG002
        """Read the file whose URI is the name of the request; raises as `FolderSkills.content_of`."""
        content, kind = await self.skills.content_of(request.name), _type_of(request.name)
        try:
            return ToolExecutionResult((File(request.name, content.decode(), kind),))
        except UnicodeDecodeError:
            return ToolExecutionResult((File(request.name, content, kind if kind != "text/plain" else BINARY),))


def skills_in(folder: str | Path, *, prefix: str = "", rescan_seconds: float = RESCAN_SECONDS) -> FolderSkills:
    """Offer the skills of a folder: ``serve(skills_in("skills"))``, or ``Features(skills="skills")``.

    A skill is the folder itself, or a folder in it at any depth, with a ``SKILL.md``. Changes of files apply; a skill
    that becomes invalid is left out, which is logged.

    Args:
        folder: The folder.
        prefix: Path in the URIs before those of the skills, such as ``acme/billing``.
        rescan_seconds: Seconds for which a list of the files is taken for current.

    Raises:
        DefinitionError: There is no such folder, no skill in it, or one that is not valid: without a name or a
            description, with the name of another folder, with a link, with more than 512 files or 16 MiB.
        MissingExtraError: ``pyyaml`` is not installed.
    """
    root = Path(os.path.realpath(Path(folder).expanduser()))
    parts = [part for part in prefix.split("/") if part]
    if any(part in {".", ".."} for part in parts):
        raise DefinitionError(f"prefix is a path without dots, such as 'acme/billing', not {prefix!r}")
    return FolderSkills(root, "".join(f"{quote(part, safe='')}/" for part in parts), rescan_seconds)


def _stored_in(folder: Folder) -> Iterator[_Stored]:
    """Yield the files of a folder, and what is refused in place of a file."""
    for opened, path, name in folder.walk(hidden=False):
        if not _UNPUBLISHED.isdisjoint(path.split("/")):
            continue
        found = os.stat(PurePosixPath(path).name, dir_fd=opened, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            continue
        problem = None
        if name is None:
            problem = "is a link, or no plain file, which a skill may not have"
        elif found.st_nlink > 1:
            problem = "has another hard link, which may be outside of the folder"
        yield _Stored(path, (found.st_size, found.st_mtime_ns, found.st_ino), problem)


def _content_of(file: int) -> bytes:
    """Read an opened file, up to a byte more than a skill may have."""
    parts = iter(partial(os.read, file, MAX_BYTES + 1), b"")
    content = b""
    for part in parts:
        content += part
        if len(content) > MAX_BYTES:
            raise ToolError(f"the file has more than {MAX_BYTES:,} bytes")
    return content


def _type_of(uri: str) -> str:
    return _MARKDOWN if uri.endswith(".md") else mimetypes.guess_type(uri)[0] or "text/plain"
