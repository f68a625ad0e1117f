"""Skills: a source of skills, which lists them, and reads and verifies their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import DefinitionError, ResourceNotFoundError, ToolError
from bridge.skills.skill import Skill, SkillMismatchError, frontmatter_of
from bridge.text import clip
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.checks import require_type
from bridge.tools.content import File
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.resources.box import ResourceBox


class Skills:
    """Base of sources of skills."""

    box: ResourceBox | None = None
    """The files, as resources of the server that serves these skills; None if it has them already."""

    @property
    def are_offered(self) -> bool:
        """True if there may be skills."""
        return True

    def may_show(self, shows: Callable[[Skill], bool]) -> bool:  # noqa: ARG002 - for subclasses
        """Return False if it is known that ``shows`` is False for all skills."""
        return True

    async def list(self, context: InvocationContext | None = None) -> tuple[Skill, ...]:
        """Return the skills that the caller of a request sees.

        Args:
            context: Context of the request; None for none.

        Raises:
            ServerError: They cannot be listed.
        """
        raise NotImplementedError

    def changed(self, change: Callable[[Skill], Skill | None]) -> Skills:
        """Return these skills, changed or selected, also later; their files are served by the server of these.

        Args:
            change: Returns the skill to offer for one; None to leave it out.
        """
        return ChangedSkills(self, change)

    def beside(self, others: Sequence[Skills]) -> Skills:
        """Return these skills and those of other sources; of two with the same URI, the first."""
        return CombinedSkills((self, *others)) if others else self

    async def get(self, uri: str, context: InvocationContext | None = None) -> Skill | None:
        """Return a skill by the URI of its ``SKILL.md``, also one that is not listed; None if there is none.

        Raises:
            ServerError: Its server cannot be asked.
        """
        return next((each for each in await self.list(context) if each.uri == uri), None)

    async def read(self, skill: Skill, uri: str | None = None, *, context: InvocationContext | None = None) -> File:
        """Read a file of a skill, and verify that it is what the skill says.

        The content is untrusted: text that a server has written for a model.

        Args:
            skill: The skill, as it was listed. It stays the same while a model follows it.
            uri: URI of the file; None for the instructions, whose frontmatter is compared as well.
            context: Context of the request; None for none.

        Raises:
            DefinitionError: ``skill`` is not a `Skill`.
            SkillMismatchError: The skill has no such file, or the file or its frontmatter is another.
            ResourceNotFoundError: The file does not exist any more.
            ServerError: It cannot be read.
        """
        require_type(skill, Skill, "the skill", "a Skill, such as one that list() has returned")
        uri = uri or skill.uri
        entry = skill.file(uri)
        if entry is None and (skill.files is not None or not uri.startswith(f"{skill.root}/")):
            raise SkillMismatchError(
                f"the skill {clip(skill.uri)!r} has no file {clip(uri)!r}; if it is new, list the skills again"
            )
        file = await self._fetch(skill, uri, context or InvocationContext())
        content = file.content.encode() if isinstance(file.content, str) else file.content
        if entry is not None:
            entry.check(content)
        if uri == skill.uri:
            try:
                frontmatter = frontmatter_of(content, f"the skill {clip(uri)!r}")
            except DefinitionError as error:
                raise SkillMismatchError(str(error)) from error
            if frontmatter != skill.frontmatter:
                raise SkillMismatchError(f"the frontmatter of {clip(uri)!r} is not what the skill's entry says")
        return file

    async def _fetch(self, skill: Skill, uri: str, context: InvocationContext) -> File:  # noqa: ARG002 - for subclasses
        """Read a file without verification."""
        found = None if self.box is None else self.box.find(uri)
        if found is None:
            raise ResourceNotFoundError(uri)
        result = await found.tool.executor.execute(ToolExecutionRequest(found.tool.name), context)
        return only_file(result.content, uri)


def only_file(content: Iterable[object], uri: str) -> File:
    """Return the file that was read; raises `ToolError` for several contents."""
    files = [each for each in content if isinstance(each, File)]
    if len(files) != 1:
        raise ToolError(f"{clip(uri)!r} has {len(files)} contents, and a file of a skill has one")
    return files[0]


class CombinedSkills(Skills):
    """The skills of several sources; of two with the same URI, the first."""

    def __init__(self, sources: Iterable[Skills]) -> None:
        self.sources = tuple(sources)

    @property
    def are_offered(self) -> bool:
        """True if a source may have skills."""
        return any(each.are_offered for each in self.sources)

    def may_show(self, shows: Callable[[Skill], bool]) -> bool:
        """Return False if no source shows one; see `Skills.may_show`."""
        return any(each.are_offered and each.may_show(shows) for each in self.sources)

    async def list(self, context: InvocationContext | None = None) -> tuple[Skill, ...]:
        """Return the skills of all sources; see `Skills.list`."""
        found: dict[str, Skill] = {}
        for source in self.sources:
            for each in await source.list(context) if source.are_offered else ():
                found.setdefault(each.uri, each)
        return tuple(found.values())

    async def get(self, uri: str, context: InvocationContext | None = None) -> Skill | None:
        """Return the skill of the first source that has it; see `Skills.get`."""
        for source in self.sources:
            if source.are_offered and (found := await source.get(uri, context)) is not None:
                return found
        return None

    async def _fetch(self, skill: Skill, uri: str, context: InvocationContext) -> File:
        for source in self.sources:
            if await source.get(skill.uri, context) is not None:
                return await source._fetch(skill, uri, context)  # noqa: SLF001 - of the same class
        raise ResourceNotFoundError(uri)


class ChangedSkills(Skills):
    """The skills of another source, changed or selected; made by `Skills.changed`."""

    def __init__(self, source: Skills, change: Callable[[Skill], Skill | None]) -> None:
        self._source = source
        self._change = change

    @property
    def are_offered(self) -> bool:
        """True if the other source may have skills."""
        return self._source.are_offered

    def may_show(self, shows: Callable[[Skill], bool]) -> bool:
        """Return False if the other source shows none that is offered; see `Skills.may_show`."""
        return self._source.may_show(lambda each: (found := self._change(each)) is not None and shows(found))

    async def list(self, context: InvocationContext | None = None) -> tuple[Skill, ...]:
        """Return the changed skills; see `Skills.list`."""
        return tuple(changed for each in await self._source.list(context) if (changed := self._change(each)))
