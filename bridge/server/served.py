"""Resources and prompts of one server: found by access, read and rendered like tools are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError
from bridge.server.auth.access import EVERYTHING
from bridge.server.client_values import ClientValues
from bridge.server.listing import CACHE_SCOPE, LIST_TTL_MS, Listing, ListKind, Views
from bridge.server.protocol import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, LIMIT_EXCEEDED, ProtocolError
from bridge.tools.box import Box
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.completion import NO_COMPLETION
from bridge.wire.prompts import messages_to_wire, prompt_to_wire
from bridge.wire.resources import contents_to_wire, resource_to_wire, template_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.prompts.box import PromptBox
    from bridge.prompts.prompt import Prompt
    from bridge.resources.box import Readable, ResourceBox
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.server.changes import Feature
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.types import Json

_Written = TypeVar("_Written")
B = TypeVar("B", bound=Box[Any])

MAX_WATCHED = 1000
"""Maximum number of resources that a session of the handshake era watches."""
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


class Produce(Protocol):
    """Runs what reads or renders, within the limits of calls; `bridge.server.core.ServerCore.produce`."""

    async def __call__(
        self, tool: Tool, request: ToolExecutionRequest, context: InvocationContext
    ) -> ToolExecutionResult:
        """Return the result.

        Raises:
            ProtocolError: The call failed outside of the function.
            Exception: Raised by the function.
        """
        ...


class ServedResources:
    """The resources of a server."""

    feature: ClassVar[Feature] = "resources"

    def __init__(self, box: ResourceBox, produce: Produce, page_size: int | None) -> None:
        self.box = box
        self.views = _views(box, page_size, _RESOURCES, _TEMPLATES)
        """The resources by access."""
        self._produce = produce
        self._watched = ClientValues[set[str]](set)

    def watched_by(self, client: object) -> set[str]:
        """Return the URIs that a client of the handshake era watches, which may be changed."""
        return self._watched.of(client)

    def watch(self, client: object, uri: str, access: Access) -> None:
        """Let a client of the handshake era watch a resource.

        Raises:
            ProtocolError: The caller sees no such resource, or watches too many.
        """
        watched = self._watched.of(client)
        if self.find(uri, access) is None:
            raise _not_found(uri, modern=False)
        if len(watched) >= MAX_WATCHED and uri not in watched:
            raise ProtocolError(LIMIT_EXCEEDED, f"a session may watch {MAX_WATCHED} resources; unsubscribe from others")
        watched.add(uri)

    def find(self, uri: str, access: Access = EVERYTHING) -> Readable | None:
        """Return what reads a URI; None if the caller sees no such resource."""
        return self.views.of(access).box.find(uri)

    async def read(
        self, uri: str, context: InvocationContext, write: Callable[[Json], _Written], *, modern: bool, access: Access
    ) -> _Written:
        """Answer a ``resources/read``.

        Args:
            uri: URI of the resource.
            context: Context of the request.
            write: Writes the result, given as JSON.
            modern: True for a client of version 2026-07-28.
            access: Permissions of the caller; a resource outside of them does not exist.

        Raises:
            ProtocolError: There is no such resource, or it cannot be read.
            InputRequired: The function asked a question that needs another round.
        """
        found = self.find(uri, access)
        if found is None:
            raise _not_found(uri, modern=modern)
        _check_scopes(found.resource.name, access)
        try:
            result = await self._produce(
                found.tool, ToolExecutionRequest(found.resource.name, found.arguments), context
            )
        except ArgumentsError as error:
            problems = "; ".join(map(str, error.problems))
            raise ProtocolError(INVALID_PARAMS, f"the URI {uri!r} is not valid: {problems}", {"uri": uri}) from None
        except ResourceNotFoundError:
            raise _not_found(uri, modern=modern) from None
        except (ToolError, ToolTimeoutError) as error:
            raise ProtocolError(INTERNAL_ERROR, str(error), {"uri": uri}) from None
        wire = contents_to_wire(result)
        if modern:
            wire |= {"resultType": "complete", "ttlMs": LIST_TTL_MS, "cacheScope": CACHE_SCOPE}
        return write(wire)

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
                return await each.complete(variable, text, known, context)
        if self.find(template, access) is not None:  # a resource has no variables
            return NO_COMPLETION
        raise ProtocolError(INVALID_PARAMS, f"there is no resource template {template!r}")


class ServedPrompts:
    """The prompts of a server."""

    feature: ClassVar[Feature] = "prompts"

    def __init__(self, box: PromptBox, produce: Produce, page_size: int | None) -> None:
        self.box = box
        self.views = _views(box, page_size, _PROMPTS)
        """The prompts by access."""
        self._produce = produce

    def find(self, name: str, access: Access = EVERYTHING) -> Prompt | None:
        """Return a prompt; None if the caller sees no such prompt."""
        return self.views.of(access).box.find(name)

    async def render(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], _Written],
        *,
        modern: bool,
        access: Access,
    ) -> _Written:
        """Answer a ``prompts/get``.

        Args:
            name: Name of the prompt.
            arguments: Its arguments, not yet validated.
            context: Context of the request.
            write: Writes the result, given as JSON.
            modern: True for a client of version 2026-07-28.
            access: Permissions of the caller; a prompt outside of them does not exist.

        Raises:
            ProtocolError: There is no such prompt, an argument is missing or wrong, or it cannot be rendered.
            InputRequired: The function asked a question that needs another round.
        """
        prompt = self._required(name, access)
        _check_scopes(name, access)
        try:
            result = await self._produce(prompt.tool, ToolExecutionRequest(name, arguments), context)
        except ArgumentsError as error:
            problems = "; ".join(map(str, error.problems))
            raise ProtocolError(INVALID_PARAMS, f"invalid arguments for the prompt {name!r}: {problems}") from None
        except (ToolError, ToolTimeoutError) as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from None
        wire = messages_to_wire(prompt, result)
        return write(wire | {"resultType": "complete"} if modern else wire)

    async def complete(
        self, name: str, argument: str, text: str, known: Mapping[str, str], context: InvocationContext, access: Access
    ) -> Completion:
        """Return values for an argument of a prompt.

        Raises:
            ProtocolError: The caller sees no such prompt.
        """
        return await self._required(name, access).complete(argument, text, known, context)

    def _required(self, name: str, access: Access) -> Prompt:
        prompt = self.find(name, access)
        if prompt is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no prompt {name!r}")
        return prompt


def _not_found(uri: str, *, modern: bool) -> ProtocolError:
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return ProtocolError(code, f"there is no resource {uri!r}", {"uri": uri})


def _check_scopes(name: str, access: Access) -> None:
    if access.missing(name):
        raise ProtocolError(INVALID_REQUEST, f"{name!r} needs a scope that was not granted")
