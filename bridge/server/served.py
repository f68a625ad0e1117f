"""Resources and prompts of one server: found by access, read and rendered like tools are called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError
from bridge.server.auth.access import EVERYTHING
from bridge.server.client_values import ClientValues
from bridge.server.listing import CACHE_SCOPE, LIST_TTL_MS, Listing, ListKind, Views
from bridge.server.protocol import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, LIMIT_EXCEEDED, ProtocolError
from bridge.text import clip
from bridge.tools.box import Box
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.completion import NO_COMPLETION
from bridge.tools.executors import CallableExecutor
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool
from bridge.wire.prompts import messages_to_wire, prompt_to_wire
from bridge.wire.resources import contents_to_wire, resource_to_wire, template_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping

    from bridge.prompts.box import PromptBox
    from bridge.prompts.prompt import Prompt
    from bridge.resources.box import Readable, ResourceBox
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.types import Feature, Json

_Written = TypeVar("_Written")
B = TypeVar("B", bound=Box[Any])

MAX_URI_CHARS = 1024
"""Maximum length of a URI in an error's data."""
MAX_WATCHED = 1000
"""Maximum number of resources that a session of the handshake era watches."""
MAX_WATCHED_BYTES = 256 * 1024
"""Maximum length of their URIs together."""
RESOURCE_NOT_FOUND = -32002
"""Code of the handshake era for a resource that does not exist."""

_RESOURCES: ListKind[Resource] = ListKind(
    "resources",
    lambda box: box.resources,
    lambda resource: resource.uri,
    lambda resource, _: resource_to_wire(resource),
)
_TEMPLATES: ListKind[ResourceTemplate] = ListKind(
    "resourceTemplates",
    lambda box: box.templates,
    lambda template: str(template.uri_template),
    lambda template, _: template_to_wire(template),
)
_PROMPTS: ListKind[Prompt] = ListKind(
    "prompts", iter, lambda prompt: prompt.name, lambda prompt, _: prompt_to_wire(prompt)
)


class View(NamedTuple, Generic[B]):
    """The part of a box that some callers see, and its lists by member of their results."""

    box: B
    lists: Mapping[str, Listing[Any]]


def _views(box: B, page_size: int | None, *kinds: ListKind[Any]) -> Views[B, View[B]]:
    return Views(box, lambda part: View(part, {kind.member: Listing(part, kind, page_size) for kind in kinds}))


class Running(Protocol):
    """Runs what reads, renders or completes, and writes its results: a `bridge.server.core.ServerCore`."""

    async def produce(
        self, tool: Tool, request: ToolExecutionRequest, context: InvocationContext
    ) -> ToolExecutionResult:
        """Return the result, within the limits of calls.

        Raises:
            ArgumentsError: The arguments are invalid.
            ResourceNotFoundError: The function says so.
            ToolError: The function failed with a message for the client.
            ToolTimeoutError: It took too long.
            ProtocolError: It failed otherwise, which has been logged.
        """
        ...

    def write_produced(self, name: str, wire: Json, write: Callable[[Json], _Written]) -> _Written:
        """Write a result, within its limit.

        Raises:
            ProtocolError: It is too long, or cannot be sent.
        """
        ...


class _Served:
    """Base of `ServedResources` and `ServedPrompts`."""

    def __init__(self, core: Running) -> None:
        self._core = core

    async def _produced(
        self,
        tool: Tool,
        request: ToolExecutionRequest,
        context: InvocationContext,
        what: Callable[[], str],
        absent: Callable[[], ProtocolError],
    ) -> ToolExecutionResult:
        """Run what reads, renders or completes.

        Raises:
            ProtocolError: It failed; ``absent()`` if it says that there is no such resource.
        """
        try:
            return await self._core.produce(tool, request, context)
        except ArgumentsError as error:
            problems = "; ".join(map(str, error.problems))
            raise ProtocolError(INVALID_PARAMS, f"invalid arguments for {what()}: {problems}", absent().data) from None
        except ResourceNotFoundError:
            raise absent() from None
        except (ToolError, ToolTimeoutError) as error:
            raise ProtocolError(INTERNAL_ERROR, str(error), absent().data) from None

    async def _completed(
        self,
        item: ResourceTemplate | Prompt,
        argument: str,
        text: str,
        known: Mapping[str, str],
        context: InvocationContext,
    ) -> Completion:
        """Complete within the limits and the time of the item itself.

        Raises:
            ProtocolError: The completion failed.
        """

        async def execute(*_: object) -> ToolExecutionResult:
            return ToolExecutionResult((), value=await item.complete(argument, text, known, context))

        tool = Tool(ToolSpecification(name=item.name), CallableExecutor(execute, item.name), policy=item.policy)

        def nothing() -> ProtocolError:
            return ProtocolError(INTERNAL_ERROR, f"there is nothing to complete {argument!r} of {item.name!r} with")

        completed = await self._produced(
            tool, ToolExecutionRequest(tool.name), context, lambda: repr(item.name), nothing
        )
        completion: Completion = completed.value
        return completion


class ServedResources(_Served):
    """The resources of a server."""

    feature: ClassVar[Feature] = "resources"

    def __init__(self, box: ResourceBox, core: Running, page_size: int | None) -> None:
        super().__init__(core)
        self.box = box
        self.views = _views(box, page_size, _RESOURCES, _TEMPLATES)
        """The resources by access."""
        self._watched = ClientValues[set[str]](set)
        self._ends = ClientValues[dict[str, Callable[[], None]]](dict)
        self.on_watch: Callable[[str, str, bool], Awaitable[None]] | None = None
        """Called with a session's id, a URI, and True if the session watches it now, before the client is answered."""

    def watched_by(self, client: object) -> set[str]:
        """Return the URIs that a client of the handshake era watches, which may be changed."""
        return self._watched.of(client)

    async def watch(self, client: object, session: str | None, uri: str, access: Access) -> None:
        """Let a client of the handshake era watch a resource.

        Args:
            client: The SDK's record of the client.
            session: Id of its session; None without one.
            uri: URI of the resource.
            access: Permissions of the caller.

        Raises:
            ProtocolError: The caller sees no such resource, lacks a scope of it, or watches too many.
        """
        self.required(uri, access, modern=False)
        watched = self._watched.of(client)
        others = watched - {uri}
        if len(others) >= MAX_WATCHED:
            raise ProtocolError(LIMIT_EXCEEDED, f"a session may watch {MAX_WATCHED} resources; unsubscribe from others")
        length = sum(len(each.encode(errors="surrogatepass")) for each in (uri, *others))
        if length > MAX_WATCHED_BYTES:
            message = f"a session may watch URIs of {MAX_WATCHED_BYTES} bytes, not {length}; unsubscribe from others"
            raise ProtocolError(LIMIT_EXCEEDED, message)
        ends = self._ends.of(client)
        if uri not in ends:
            ends[uri] = await self._begin_watch(uri)
        watched.add(uri)
        if session is not None and self.on_watch is not None:
            await self.on_watch(session, uri, True)

    async def unwatch(self, client: object, session: str | None, uri: str) -> None:
        """Let a client of the handshake era no longer watch a resource."""
        self._watched.of(client).discard(uri)
        self._ends.of(client).pop(uri, _nothing)()
        if session is not None and self.on_watch is not None:
            await self.on_watch(session, uri, False)

    def end_watches(self, client: object) -> None:
        """End what is done for a client of the handshake era that watches resources, after its session."""
        ends = self._ends.of(client)
        while ends:
            ends.popitem()[1]()

    @asynccontextmanager
    async def watching(self, uris: Iterable[str]) -> AsyncIterator[list[str]]:
        """Watch resources in this block, for a client of the modern era; yields those whose changes are announced."""
        ends: dict[str, Callable[[], None]] = {}
        try:
            for uri in uris:
                with suppress(ProtocolError):
                    ends[uri] = await self._begin_watch(uri)
            yield [*ends]
        finally:
            for end in ends.values():
                end()

    async def _begin_watch(self, uri: str) -> Callable[[], None]:
        try:
            return await self.box.begin_watch(uri)
        except (ToolError, ResourceNotFoundError) as error:
            raise ProtocolError(INVALID_PARAMS, str(error), {"uri": uri[:MAX_URI_CHARS]}) from None

    def find(self, uri: str, access: Access = EVERYTHING) -> Readable | None:
        """Return what reads a URI; None if the caller sees no such resource, though another template has it, too."""
        found = self.box.find(uri)
        return found if found is not None and access.shows(found.resource.name) else None

    def is_readable(self, uri: str, access: Access) -> bool:
        """Return True if the caller sees a resource, and was granted its scopes."""
        found = self.find(uri, access)
        return found is not None and not access.missing(found.resource.name)

    def required(self, uri: str, access: Access, *, modern: bool) -> Readable:
        """Return what reads a URI.

        Raises:
            ProtocolError: The caller sees no such resource, or lacks a scope for it.
        """
        found = self.find(uri, access)
        if found is None:
            raise _not_found(uri, modern=modern)
        _check_scopes(found.resource.name, access)
        return found

    async def read(
        self,
        uri: str,
        found: Readable,
        context: InvocationContext,
        write: Callable[[Json], _Written],
        *,
        modern: bool,
    ) -> _Written:
        """Answer a ``resources/read``.

        Args:
            uri: URI of the resource.
            found: Reads it; from `required`, or from `find` for a caller who lacks no scope.
            context: Context of the request.
            write: Writes the result, given as JSON.
            modern: True for a client of version 2026-07-28.

        Raises:
            ProtocolError: It cannot be read, or the function says that there is no such resource.
            InputRequired: The function asked a question that needs another round.
        """
        request, absent = (
            ToolExecutionRequest(found.tool.name, found.arguments),
            partial(_not_found, uri, modern=modern),
        )
        result = await self._produced(found.tool, request, context, lambda: f"the URI {clip(uri)!r}", absent)
        wire = contents_to_wire(result)
        if modern:
            wire |= {"resultType": "complete", "ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE}
        return self._core.write_produced(found.resource.name, wire, write)

    async def complete(
        self,
        template: str,
        variable: str,
        text: str,
        known: Mapping[str, str],
        context: InvocationContext,
        access: Access,
    ) -> Completion:
        """Return values for a variable of a template, given as text.

        Raises:
            ProtocolError: The caller sees no such template.
        """
        for each in self.views.of(access).box.templates:
            if str(each.uri_template) == template:
                _check_scopes(each.name, access)
                return await self._completed(each, variable, text, known, context)
        if self.find(template, access) is not None:  # a resource has no variables
            return NO_COMPLETION
        raise ProtocolError(INVALID_PARAMS, f"there is no resource template {clip(template)!r}")


class ServedPrompts(_Served):
    """The prompts of a server."""

    feature: ClassVar[Feature] = "prompts"

    def __init__(self, box: PromptBox, core: Running, page_size: int | None) -> None:
        super().__init__(core)
        self.box = box
        self.views = _views(box, page_size, _PROMPTS)
        """The prompts by access."""

    def find(self, name: str, access: Access = EVERYTHING) -> Prompt | None:
        """Return a prompt; None if the caller sees no such prompt."""
        return self.views.of(access).box.find(name)

    def required(self, name: str, access: Access) -> Prompt:
        """Return a prompt.

        Raises:
            ProtocolError: The caller sees no such prompt, or lacks a scope for it.
        """
        prompt = self.find(name, access)
        if prompt is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no prompt {clip(name)!r}")
        _check_scopes(name, access)
        return prompt

    async def render(
        self,
        prompt: Prompt,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], _Written],
        *,
        modern: bool,
    ) -> _Written:
        """Answer a ``prompts/get``.

        Args:
            prompt: The prompt; from `required`, or from `find` for a caller who lacks no scope.
            arguments: Its arguments, not yet validated.
            context: Context of the request.
            write: Writes the result, given as JSON.
            modern: True for a client of version 2026-07-28.

        Raises:
            ProtocolError: An argument is missing or wrong, or it cannot be rendered.
            InputRequired: The function asked a question that needs another round.
        """
        name = prompt.name

        def absent() -> ProtocolError:
            return ProtocolError(INTERNAL_ERROR, f"the prompt {name!r} uses a resource that does not exist")

        result = await self._produced(
            prompt.tool, ToolExecutionRequest(name, arguments), context, lambda: f"the prompt {name!r}", absent
        )
        wire = messages_to_wire(prompt, result)
        return self._core.write_produced(name, wire | {"resultType": "complete"} if modern else wire, write)

    async def complete(
        self, name: str, argument: str, text: str, known: Mapping[str, str], context: InvocationContext, access: Access
    ) -> Completion:
        """Return values for an argument of a prompt.

        Raises:
            ProtocolError: The caller sees no such prompt.
        """
        return await self._completed(self.required(name, access), argument, text, known, context)


def _nothing() -> None:
    """End nothing."""


def _not_found(uri: str, *, modern: bool) -> ProtocolError:
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return ProtocolError(code, f"there is no resource {clip(uri)!r}", {"uri": uri[:MAX_URI_CHARS]})


def _check_scopes(name: str, access: Access) -> None:
    if access.missing(name):
        raise ProtocolError(INVALID_REQUEST, f"{name!r} needs a scope that was not granted")
