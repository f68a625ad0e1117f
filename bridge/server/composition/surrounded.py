"""Middleware of mounted servers: around what they have, inside of the middleware of the server that mounts them.

It gets the names and URIs of its own server, and the lists of what callers see of that one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from bridge.errors import ResourceNotFoundError, ToolError
from bridge.prompts.prompt import Prompt
from bridge.resources.resource import Resource, ResourceTemplate
from bridge.server.auth.identity import access_of_request
from bridge.server.middleware import Around, AroundTool, run_other
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.completion import NO_COMPLETION
from bridge.tools.lifespan import lifespans_of
from bridge.tools.middleware import (
    CompleteRequest,
    GetPromptRequest,
    Hook,
    ListRequest,
    ReadResourceRequest,
    around,
    layers_of,
)
from bridge.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bridge.tools.box import Box
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import Layer, Middleware
    from bridge.types import Feature

    Item = Tool | Resource | ResourceTemplate | Prompt
    Change = Callable[[tuple[Any, ...]], Iterable[Any]]

_LISTED: dict[Hook, tuple[Feature, type]] = {
    "list_tools": ("tools", Tool),
    "list_resources": ("resources", Resource),
    "list_resource_templates": ("resources", ResourceTemplate),
    "list_prompts": ("prompts", Prompt),
}


class Surroundings:
    """The middleware of one server, with what it surrounds.

    Args:
        middleware: The middleware, the outermost first.
        boxes: What the server has, also of servers that it mounts.
        parts: Returns the parts of its lists that are of servers with middleware which it mounts.
        lifespan: The lifespan whose value the middleware gets; None for that of the server that mounts it.
    """

    def __init__(
        self,
        middleware: tuple[Middleware, ...],
        boxes: Mapping[Feature, Box[Any]],
        parts: Callable[[], tuple[Part, ...]],
        lifespan: Lifespan[Any] | None,
    ) -> None:
        self.layers: dict[Hook, tuple[Layer, ...]] = {hook: layers_of(middleware, hook) for hook in get_args(Hook)}
        """The middleware for each kind of request."""
        self.boxes: Mapping[Feature, Any] = boxes
        self.parts = parts
        self.lifespan = lifespan

    def around(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items of the server within its middleware."""
        for item in items:
            changed: dict[str, Any] = {}
            if isinstance(item, Tool):
                if self.layers["call_tool"]:
                    changed["executor"] = _SurroundedTool(self, item)
            else:
                if isinstance(item, Prompt):
                    if self.layers["get_prompt"]:
                        changed["renderer"] = _SurroundedPrompt(self, item)
                elif self.layers["read_resource"]:
                    changed["reader"] = _SurroundedReader(self, item)
                if self.layers["complete"] and not isinstance(item, Resource):
                    changed["completions"] = _SurroundedCompletions(self, item)
            yield replace(item, **changed) if changed else item

    def within(self, context: InvocationContext) -> InvocationContext:
        """Return the context for the middleware."""
        return context if self.lifespan is None else context.within(self.lifespan)

    def lifespans_with(self, executor: object) -> tuple[Lifespan[Any], ...]:
        """Return the lifespans that an executor and the middleware around it need."""
        own = () if self.lifespan is None else (self.lifespan,)
        return tuple(dict.fromkeys((*own, *lifespans_of(executor))))

    def surrounds_list(self, hook: Hook) -> bool:
        """True if middleware of the server, or of one that it mounts, is for a list."""
        return bool(self.layers[hook]) or any(part.surroundings.surrounds_list(hook) for part in self.parts())


def _check_other(name: str) -> None:
    """Refuse another name than that of the request, unless the caller may use everything.

    Permissions go by the names that the outermost server gives, which are not known here.
    """
    access = access_of_request()
    if not access.sees_all or access.tool_scopes:
        raise ToolError(f"middleware of a mounted server used {name!r}, for which the caller's permissions are unknown")


@dataclass(frozen=True, slots=True)
class _Surrounded:
    """Base of what runs middleware around an item."""

    surroundings: Surroundings
    item: Any

    streams_contents = False
    """Middleware gets whole contents."""

    @property
    def lifespans(self) -> tuple[Lifespan[Any], ...]:
        """The lifespans whose values its calls may need."""
        return self.surroundings.lifespans_with(self._inner)

    @property
    def _inner(self) -> object:
        """The executor of the item."""
        raise NotImplementedError


class _SurroundedTool(_Surrounded):
    """Calls a tool."""

    __slots__ = ()

    @property
    def _inner(self) -> object:
        return self.item.executor

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        own = self.surroundings
        executor = AroundTool(own.layers["call_tool"], own.boxes["tools"], self.item, _check_other)
        return await executor.execute(replace(request, name=self.item.name), own.within(context))


class _SurroundedReader(_Surrounded):
    """Reads a resource, or one of a template."""

    __slots__ = ()

    @property
    def _inner(self) -> object:
        return self.item.reader

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request, whose name is the URI; see `bridge.tools.tool.ToolExecutor`."""
        own, item = self.surroundings, self.item
        box = own.boxes["resources"]
        uri = item.uri if isinstance(item, Resource) else request.name

        async def last(wanted: ReadResourceRequest, context: InvocationContext) -> ToolExecutionResult:
            if wanted.uri == uri:
                tool = item.tool if isinstance(item, Resource) else item.tool_of(uri)
                result: ToolExecutionResult = await tool.executor.execute(replace(request, name=uri), context)
                return result
            _check_other(wanted.uri)
            if (found := box.find(wanted.uri)) is None:
                raise ResourceNotFoundError(wanted.uri)
            return await run_other(found.tool, found.arguments, context)

        read = ReadResourceRequest(uri, revision=(box.version, box.updates))
        return await Around(own.layers["read_resource"], read, last).execute(request, own.within(context))


class _SurroundedPrompt(_Surrounded):
    """Renders a prompt."""

    __slots__ = ()

    @property
    def _inner(self) -> object:
        return self.item.renderer

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        own, item = self.surroundings, self.item
        box = own.boxes["prompts"]

        async def last(wanted: GetPromptRequest, context: InvocationContext) -> ToolExecutionResult:
            if wanted.name == item.name:
                given = ToolExecutionRequest(item.name, wanted.arguments)
                result: ToolExecutionResult = await item.renderer.execute(given, context)
                return result
            _check_other(wanted.name)
            if (found := box.find(wanted.name)) is None:
                raise ToolError(f"there is no prompt {wanted.name!r}")
            return await run_other(found.tool, wanted.arguments, context)

        get = GetPromptRequest(item.name, request.arguments_by_name(), revision=box.version)
        return await Around(own.layers["get_prompt"], get, last).execute(request, own.within(context))


class _SurroundedCompletions(_Surrounded):
    """Completes the arguments of a prompt or template."""

    __slots__ = ()

    @property
    def _inner(self) -> object:
        return self.item.completions

    async def complete(
        self, name: str, text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return the values for an argument; see `bridge.tools.completion.Completions.complete`."""
        own, item = self.surroundings, self.item
        feature: Feature = "prompts" if isinstance(item, Prompt) else "resources"
        key = own.boxes[feature].key_of(item)

        async def last(wanted: CompleteRequest, context: InvocationContext) -> Completion:
            target = item
            if (wanted.feature, wanted.name) != (feature, key):
                _check_other(wanted.name)
                box = own.boxes.get(wanted.feature, ())
                target = next((each for each in box if box.key_of(each) == wanted.name), None)
            if target is None or isinstance(target, Resource):
                return NO_COMPLETION
            result: Completion = await target.complete(wanted.argument, wanted.value, wanted.arguments, context)
            return result

        request = CompleteRequest(feature, key, name, text, arguments)
        completion: Completion = await around(own.layers["complete"], last)(request, own.within(context))
        return completion


class Part(NamedTuple):
    """The part of a server's lists that is of a server with middleware, which it mounts."""

    surroundings: Surroundings
    changes: tuple[Change, ...] = ()
    """Give the items the names and URIs that they have in the lists, one after the other."""

    def changed(self, change: Change) -> Part:
        """Return the part of a server that changes its items."""
        return Part(self.surroundings, (*self.changes, change))

    async def listed(
        self, hook: Hook, request: ListRequest, items: Sequence[Any], context: InvocationContext
    ) -> Sequence[Any]:
        """Return the items of a list, with those of this part as the middleware returns them.

        Args:
            hook: The list.
            request: The request.
            items: The items of the whole list.
            context: Context of the request.
        """
        own, (feature, kind) = self.surroundings, _LISTED[hook]
        if not own.surrounds_list(hook) or (box := own.boxes.get(feature)) is None:
            return items
        sources = {_key_of(outer): each for each in box.feed if isinstance(each, kind) for outer in self._changed(each)}
        outer_of = {id(source): each for each in items if (source := sources.get(_key_of(each))) is not None}
        mine = tuple(source for each in items if (source := sources.get(_key_of(each))) is not None)

        async def last(wanted: ListRequest, context: InvocationContext) -> Sequence[Any]:
            return await listed_by(own.parts(), hook, wanted, mine, context)

        inner = ListRequest(request.method, revision=(request.revision, tuple(map(_key_of, mine))))
        found = await around(own.layers[hook], last)(inner, own.within(context))
        if found is mine:
            return items
        changed: list[Any] = []
        for item in found:
            changed += (outer_of[id(item)],) if id(item) in outer_of else self._changed(item)
        replaced = set(map(id, outer_of.values()))
        start = next((i for i, each in enumerate(items) if id(each) in replaced), len(items))
        return (*items[:start], *changed, *(each for each in items[start:] if id(each) not in replaced))

    def _changed(self, item: Any) -> tuple[Any, ...]:
        """Return an item as it is in the lists; nothing if it is left out there."""
        found = (item,)
        for change in self.changes:
            found = tuple(change(found))
        return found


def _key_of(item: Any) -> tuple[str, str | None]:
    """Return what tells an item apart from the others of its list."""
    key = item.uri if isinstance(item, Resource) else getattr(item, "uri_template", item.name)
    return str(key), item.version


async def listed_by(
    parts: Iterable[Part], hook: Hook, request: ListRequest, items: Sequence[Any], context: InvocationContext
) -> Sequence[Any]:
    """Return a list whose parts are of servers with middleware; the arguments are those of `Part.listed`."""
    for part in parts:
        items = await part.listed(hook, request, items, context)
    return items
