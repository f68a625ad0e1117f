"""``skills/list``, ``skills/get`` and ``resources/directory/read`` (extension ``io.modelcontextprotocol/skills``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ServerError, ToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS
from bridge.server.lists.listing import CACHE_SCOPE, LIST_TTL_MS, Edition, ListKind
from bridge.server.methods.extensions import ExtensionMethod, produced
from bridge.server.methods.method import required_text
from bridge.server.methods.pages import page_of
from bridge.text import clip
from bridge.tools.toolbox import ToolBox
from bridge.wire.skills import SKILLS, directory_to_wire, skill_to_wire

if TYPE_CHECKING:
    from bridge.server.exchange import ServedExchange
    from bridge.skills.skill import Skill
    from bridge.skills.source import Skills
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_ENTRIES: ListKind[Skill] = ListKind(
    "skills", lambda _: (), lambda skill: skill.uri, lambda skill, _: skill_to_wire(skill)
)
_NO_BOX = ToolBox()
_CACHING = {"ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE}


class _SkillMethod(ExtensionMethod):
    """Base of the methods for skills."""

    extension = SKILLS

    @property
    def _skills(self) -> Skills:
        assert self._core.features.skills is not None, "they are offered"
        return self._core.features.skills

    async def run(self, exchange: ServedExchange) -> bytes:
        """Answer the request."""

        async def answer(context: InvocationContext) -> Json:
            try:
                return await self._answer(exchange, context)
            except ServerError as error:
                raise ToolError(error.brief) from error

        return await produced(self._core, exchange, answer)

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        """Return the result."""
        raise NotImplementedError

    async def _visible(self, exchange: ServedExchange, context: InvocationContext) -> tuple[Skill, ...]:
        return tuple(each for each in await self._skills.list(context) if exchange.access.shows(each))


class SkillsList(_SkillMethod):
    """The skills that a caller sees."""

    name = "skills/list"

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        visible = await self._visible(exchange, context)
        edition = Edition(None, _NO_BOX, visible, _ENTRIES, self._core.options["page_size"])
        return page_of(edition, exchange)


class SkillsGet(_SkillMethod):
    """One skill."""

    name = "skills/get"

    def plan(self, exchange: ServedExchange) -> None:
        """Read the URI."""
        super().plan(exchange)
        required_text(exchange.params, "uri")

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        uri = exchange.params["uri"]
        skill = await self._skills.get(uri, context)
        if skill is None or not exchange.access.shows(skill):
            raise ProtocolError(INVALID_PARAMS, f"there is no skill {clip(uri)!r}", {"uri": clip(uri)})
        return {"skill": skill_to_wire(skill)} | (_CACHING if exchange.modern else {})


class DirectoryRead(_SkillMethod):
    """The direct children of a skill's folder, or of one in it."""

    name = "resources/directory/read"

    def plan(self, exchange: ServedExchange) -> None:
        """Read the URI."""
        super().plan(exchange)
        required_text(exchange.params, "uri")

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        uri: Any = exchange.params["uri"]
        children = directory_to_wire(await self._visible(exchange, context), uri)
        if children is None or exchange.params.get("cursor") is not None:
            raise ProtocolError(INVALID_PARAMS, f"there is no directory {clip(uri)!r}", {"uri": clip(uri)})
        return {"resources": children}
