"""Tool search of a server: clients list two tools, with which they find and call all the others.

    search_tools ─> ToolRanking ─> names, descriptions and schemas of the tools that the caller may call
    call_tool(name, arguments) ─> the request becomes one for that tool, before it is dispatched
    run_code(code) ─> in place of call_tool in code mode: a script, see `bridge.server.code`

Since the request is rewritten, validation, scopes, limits, approval, tasks, questions and telemetry see the real tool.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic_core import to_json

from bridge.errors import DefinitionError, NameClashError, ToolError
from bridge.server.auth.access import matches
from bridge.server.auth.identity import access_of_request
from bridge.server.code.limits import CodeLimits, require_sandbox
from bridge.server.code.tool import RUN_TOOL, CurrentFunctions, code_tool
from bridge.text import nearest
from bridge.tools.annotated_checks import check_fields
from bridge.tools.checks import require_type
from bridge.tools.context import InvocationContext  # noqa: TC001 - of the signatures of tools
from bridge.tools.function import tool, tools_found_in
from bridge.tools.search.ranking import Embed, ToolRanking
from bridge.tools.specification import ToolAnnotations
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool
    from bridge.types import Json

    LeftTools = Callable[[Sequence[Tool], InvocationContext], Awaitable[Sequence[Tool]]]

_logger = logging.getLogger("bridge.server")

SEARCH_TOOL = "search_tools"
CALL_TOOL = "call_tool"
_MAX_RESULTS = 50
_DETAILS: Mapping[str, tuple[str, ...]] = {
    "name": ("name",),
    "description": ("name", "title", "description"),
    "full": ("name", "title", "description", "inputSchema", "annotations"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerToolSearch:
    """Lets clients of a server search for tools instead of listing all of them.

    Raises:
        DefinitionError: A value has another type.
        MissingExtraError: The mode is ``code``, and pydantic-monty is not installed.
    """

    mode: Literal["search", "auto", "code"] = "search"
    """``auto`` lists all tools while their definitions have at most `max_listed_tokens` tokens. ``code``, experimental,
    lets models call tools from scripts, by ``run_code`` in place of ``call_tool``."""
    max_listed_tokens: int = 10_000
    """Maximum tokens of definitions that ``auto`` lists; an estimate, four ASCII characters to a token."""
    always: tuple[str, ...] = ()
    """Names and patterns of tools that are always listed, besides those with ``always_visible`` and those whose
    ``_meta`` has ``anthropic/alwaysLoad``."""
    embed: Embed | None = None
    """Ranks by embeddings, too; see `bridge.service.by_embedding`. None for words alone."""
    embed_query: Embed | None = None
    """Embeds queries, if the model distinguishes them; None for ``embed``."""
    code: CodeLimits = field(default_factory=CodeLimits)
    """Limits of scripts in the mode ``code``."""

    def __post_init__(self) -> None:
        if self.mode not in ("search", "auto", "code"):
            raise DefinitionError(f"mode must be 'search', 'auto' or 'code', not {self.mode!r}")
        if self.mode == "code":
            require_sandbox()
        check_fields(self)
        require_type(self.always, tuple, "always", "a tuple of names and patterns")
        ToolRanking(self.embed, embed_query=self.embed_query)

    @property
    def own_names(self) -> tuple[str, str]:
        """Names of the tools with which the others are found and called."""
        return SEARCH_TOOL, RUN_TOOL if self.mode == "code" else CALL_TOOL

    def lists(self, tool: Tool) -> bool:
        """True if a tool is always listed."""
        return tool.is_always_visible or matches(self.always, tool.name)


class SearchedTools:
    """The tools of a server with tool search; indexed when they change.

    Args:
        tools: All tools.
        options: Options of the search.
        left_tools: Returns the tools that the middleware of their list leaves; None for all.

    Raises:
        NameClashError: One of them has the name of a tool of the search.
    """

    def __init__(self, tools: ToolBox, options: ServerToolSearch, left_tools: LeftTools | None = None) -> None:
        self.options = options
        self._left_tools = left_tools
        self._tools = tools
        self._ranking = ToolRanking(options.embed, embed_query=options.embed_query)
        for name in options.own_names:
            if (other := tools.find(name)) is not None:
                raise NameClashError(name, other.source, "the tool search", "tools")
        self._index()
        tools.on_change(self._index)

    def view(self, visible: ToolBox) -> tuple[ToolBox, ToolBox]:
        """Return the tools that callers can call, and those that they list; both follow the visible tools."""
        own_names = self.options.own_names
        if self.options.mode == "code":
            functions = CurrentFunctions(visible, own_names)
            own = tools_found_in([self._function_search(visible, functions), code_tool(functions, self.options.code)])
        else:
            own = tools_found_in([self._search_tool(visible), _call_tool(visible)])
        callable_tools, listed = ToolBox(), ToolBox()

        def follow() -> None:
            tools = [each for each in visible.all_versions if each.name not in own_names]
            callable_tools.replace([*tools, *own])
            is_short = self.options.mode == "auto" and self._tokens(tools) <= self.options.max_listed_tokens
            listed.replace(tools if is_short else [*own, *filter(self.options.lists, tools)])

        follow()
        visible.on_change(follow)
        return callable_tools, listed

    def resolved(self, params: Json, visible: ToolBox) -> Json:
        """Return the parameters of a call; for `CALL_TOOL`, those of the call of the tool that it names.

        A call that names no visible tool, or whose arguments are no object, stays one of `CALL_TOOL`, which fails.

        Args:
            params: The parameters of ``tools/call``, not validated.
            visible: The tools that the caller can call.
        """
        given = params.get("arguments")
        if params.get("name") != CALL_TOOL or self.options.mode == "code" or not isinstance(given, dict):
            return params
        name, arguments = given.get("name"), _object_of(given.get("arguments"))
        if not isinstance(name, str) or name == CALL_TOOL or arguments is None or visible.find(name) is None:
            return params
        return {**params, "name": name, "arguments": arguments}

    def runs_script(self, params: Json) -> bool:
        """Return True for the parameters of a call that runs a script."""
        return self.options.mode == "code" and params.get("name") == RUN_TOOL

    def _index(self) -> None:
        own_names = self.options.own_names
        for name in own_names:
            if (other := self._tools.find(name)) is not None:
                _logger.warning("left out %r of the %s: the tool search has this name", name, other.source)
        self._ranking.update(each.specification for each in self._tools if each.name not in own_names)

    def _search_tool(self, visible: ToolBox) -> object:
        @tool(annotations=ToolAnnotations(read_only=True, idempotent=True))
        async def search_tools(
            query: str,
            context: InvocationContext,
            limit: Annotated[int, Field(ge=1, le=_MAX_RESULTS)] = 5,
            detail: Literal["name", "description", "full"] = "full",
        ) -> str:
            """Find tools by what they do. This server has more tools than it lists; call those found with call_tool.

            Args:
                query: What the tool should do, in a few words.
                context: The context of the call.
                limit: Maximum number of tools.
                detail: Parts of the tools to return; full has the schema of the arguments.
            """
            names = await self._found(query, limit, visible, context)
            if not names:
                return _nothing_fits(query)
            found = [visible.get(name).specification for name in names]
            return to_json([_described(each, detail) for each in found]).decode()

        return search_tools

    def _function_search(self, visible: ToolBox, functions: CurrentFunctions) -> object:
        @tool(annotations=ToolAnnotations(read_only=True, idempotent=True))
        async def search_tools(
            query: str,
            context: InvocationContext,
            limit: Annotated[int, Field(ge=1, le=_MAX_RESULTS)] = 5,
            detail: Literal["name", "description", "full"] = "full",
        ) -> str:
            """Find functions for the code of run_code by what they do.

            Args:
                query: What the function should do, in a few words.
                context: The context of the call.
                limit: Maximum number of functions.
                detail: Parts of the functions to return; full has signatures and descriptions.
            """
            names = await self._found(query, limit, visible, context)
            if not names:
                return _nothing_fits(query)
            current = functions.get()
            if detail == "full":
                return "\n\n".join(current.described(name) for name in names)
            found = [{"name": current.name_of(name)} for name in names]
            if detail == "description":
                for name, each in zip(names, found, strict=True):
                    each["description"] = visible.get(name).specification.description or ""
            return to_json(found).decode()

        return search_tools

    async def _found(self, query: str, limit: int, visible: ToolBox, context: InvocationContext) -> list[str]:
        access = access_of_request()
        tools = tuple(visible)
        left = tools if self._left_tools is None else await self._left_tools(tools, context)
        left_names = None if left is tools else {each.name for each in left}

        def is_allowed(name: str) -> bool:
            found = visible.find(name)
            if found is None or not found.listed or (left_names is not None and name not in left_names):
                return False
            # Listed tools have schemas, and scripts need their signatures.
            return not access.missing(name) and (self.options.mode == "code" or not self.options.lists(found))

        try:
            return await self._ranking.search(query, limit=limit, is_allowed=is_allowed)
        except Exception:
            _logger.exception("tools could not be ranked by embeddings, and were ranked by words alone")
            return self._ranking.by_words(query, limit=limit, is_allowed=is_allowed)

    @staticmethod
    def _tokens(tools: list[Tool]) -> int:
        """Estimate the tokens of definitions."""
        return sum(len(to_json(tool_to_wire(each.specification))) for each in tools) // 4


def _call_tool(visible: ToolBox) -> object:
    @tool
    async def call_tool(name: str, arguments: dict[str, Any] | None = None) -> str:  # noqa: ARG001 - of the schema
        """Call a tool that search_tools has found.

        Args:
            name: The tool's name.
            arguments: The tool's arguments, as its inputSchema says.
        """
        # Calls of tools that exist are dispatched as such; see `SearchedTools.resolved`.
        near = nearest(name, [each.name for each in visible])
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ToolError(f"there is no tool {name!r}; {hint}{SEARCH_TOOL} finds tools")

    return call_tool


def _nothing_fits(query: str) -> str:
    return f"no tool fits {query!r}; use other words"


def _object_of(arguments: object) -> Json | None:
    """Return arguments as an object, also those that a model wrote as JSON text; None for anything else."""
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    return arguments if isinstance(arguments, dict) else None


def _described(specification: ToolSpecification, detail: str) -> Json:
    wire = tool_to_wire(specification)
    return {member: wire[member] for member in _DETAILS[detail] if member in wire}
