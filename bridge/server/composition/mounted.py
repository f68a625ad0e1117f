"""Items of mounted servers: with the lifespan of their server, and under other names and URIs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.errors import DefinitionError, ResourceNotFoundError
from bridge.prompts.prompt import Prompt, PromptMessage
from bridge.resources.namespaces import (
    localized,
    localized_json,
    localized_metadata,
    namespace_of,
    split_namespace,
    with_namespace,
)
from bridge.resources.resource import Resource, ResourceTemplate
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.checks import require_type
from bridge.tools.executors import FunctionExecutor
from bridge.tools.lifespan import lifespans_of
from bridge.tools.tool import Tool
from bridge.wire.prompts import ReceivedMessages
from bridge.wire.resources import ReceivedContents
from bridge.wire.tools import ReceivedResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.resources.box import ResourceBox
    from bridge.resources.uri_template import UriTemplate
    from bridge.tools.calls import ToolExecutionRequest
    from bridge.tools.completion import Completing, Completion
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.executors import Writer
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.tool import ToolExecutor
    from bridge.types import Json

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
Item = TypeVar("Item", Tool, Resource, ResourceTemplate, Prompt)


def within(item: Item, lifespan: Lifespan[Any]) -> Item:
    """Return an item whose function gets the value of a lifespan, unless its module has one."""
    changed: dict[str, Any] = {}
    member = _member_of(item)
    executor: ToolExecutor = getattr(item, member)
    if item.server is None and (bound := _bound(executor, lifespan)) is not executor:
        changed[member] = bound
    completions: Completing | None = getattr(item, "completions", None)
    if item.server is None and completions is not None and not lifespans_of(completions):
        changed["completions"] = _BoundCompletions(completions, lifespan)
    return replace(item, **changed) if changed else item


def _member_of(item: object) -> str:
    return "executor" if isinstance(item, Tool) else "renderer" if isinstance(item, Prompt) else "reader"


def _bound(executor: ToolExecutor, lifespan: Lifespan[Any]) -> ToolExecutor:
    if isinstance(executor, FunctionExecutor) and not executor.has_dependencies:
        return executor.within(lifespan)
    return executor if lifespans_of(executor) else _BoundExecutor(executor, lifespan)


@dataclass(frozen=True, slots=True)
class _BoundExecutor:
    """Runs an executor with a lifespan."""

    executor: ToolExecutor
    lifespan: Lifespan[Any]

    @property
    def lifespans(self) -> tuple[Lifespan[Any], ...]:
        """The lifespans whose values its calls may need."""
        return (self.lifespan,)

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        return await self.executor.execute(request, context.within(self.lifespan))


@dataclass(frozen=True, slots=True)
class _BoundCompletions:
    """Completes with a lifespan."""

    completions: Completing
    lifespan: Lifespan[Any]

    @property
    def lifespans(self) -> tuple[Lifespan[Any], ...]:
        """As of `_BoundExecutor`."""
        return (self.lifespan,)

    async def complete(
        self, name: str, text: str, arguments: Mapping[str, str], context: InvocationContext
    ) -> Completion:
        """Return the values for an argument; see `bridge.tools.completion.Completions.complete`."""
        return await self.completions.complete(name, text, arguments, context.within(self.lifespan))


class Namespace:
    """Names and URIs of the items of a source, in the boxes of a server that mounts it.

    Names begin with the prefix and ``_``, and URIs as those of a gateway's servers; see
    `bridge.resources.namespaces`. URIs in results change as well, if the source reads them.

    Args:
        prefix: The prefix: 1 to 64 letters, digits, underscores, dots and hyphens.
        resources: The resources of the source; None if it has none.

    Raises:
        DefinitionError: The prefix is none.
    """

    def __init__(self, prefix: str, resources: ResourceBox | None) -> None:
        require_type(prefix, str, "a prefix", "text")
        if not _PREFIX.fullmatch(prefix):
            raise DefinitionError(
                f"a prefix has 1 to 64 ASCII letters, digits, underscores, dots or hyphens, not {prefix!r}"
            )
        self._prefix = prefix
        self._uris = namespace_of(prefix)
        self._resources = resources

    def local(self, uri: str) -> str:
        """Return the URI for one of the source."""
        return with_namespace(self._uris, uri)

    def source(self, uri: str) -> str | None:
        """Return the URI of the source for one that was changed; None for any other."""
        found = split_namespace(uri)
        return found[1] if found is not None and found[0] == self._uris else None

    def linked(self, uri: str) -> str:
        """Return the URI for one in a result, which is changed if the source reads it."""
        return uri if self._resources is None or self._resources.find(uri) is None else self.local(uri)

    def changed(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items under their other names and URIs."""
        for item in items:
            yield self._tool(item) if isinstance(item, Tool) else self._described(item)

    def _tool(self, tool: Tool) -> Tool:
        specification = replace(tool.specification, name=self._named(tool.name))
        if self._resources is None:
            return replace(tool, specification=specification)
        specification = replace(specification, metadata=localized_metadata(tool.metadata, self.local))
        return replace(tool, specification=specification, executor=self._linking(tool.executor))

    def _described(self, item: Resource | ResourceTemplate | Prompt) -> Resource | ResourceTemplate | Prompt:
        name = self._named(item.name)
        if isinstance(item, Prompt):
            renderer = item.renderer if self._resources is None else self._linking(item.renderer)
            return replace(item, name=name, renderer=renderer)
        reader = self._linking(item.reader)
        if isinstance(item, Resource):
            return replace(item, name=name, uri=self.local(item.uri), reader=reader)
        return replace(item, name=name, uri_template=self._template(item.uri_template), reader=reader)

    def _template(self, template: UriTemplate) -> UriTemplate:
        return type(template)(self.local(str(template)))

    def _named(self, name: str) -> str:
        return f"{self._prefix}_{name}"

    def _linking(self, executor: ToolExecutor) -> ToolExecutor:
        if isinstance(executor, FunctionExecutor):
            return executor.writing(_LinkingWriter(executor.writer, self.linked))
        return _LinkingExecutor(executor, self)


class _LinkingWriter:
    """Changes the URIs of what a function returns; text and JSON have none, and are written as before."""

    __slots__ = ("_linked", "inner")

    def __init__(self, inner: Writer, linked: Callable[[str], str]) -> None:
        self.inner = inner
        self._linked = linked

    def write(self, value: Any) -> ToolExecutionResult:
        """Convert a return value."""
        return _linked(self.inner.write(value), self._linked)

    def write_json(self, value: Any) -> bytes | ToolExecutionResult:
        """Convert a return value, if possible to JSON."""
        written = self.inner.write_json(value)
        return written if isinstance(written, bytes) else _linked(written, self._linked)


@dataclass(frozen=True, slots=True)
class _LinkingExecutor:
    """Runs an executor that knows the URIs of its source, and changes those of its results."""

    executor: ToolExecutor
    namespace: Namespace

    streams_contents = False
    """Contents are changed whole, not while they are received."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        if (uri := self.namespace.source(request.name)) is None:
            return _linked(await self.executor.execute(request, context), self.namespace.linked)
        try:
            result = await self.executor.execute(replace(request, name=uri), context)
        except ResourceNotFoundError as error:
            raise ResourceNotFoundError(self.namespace.local(error.uri)) from error
        return _linked(result, self.namespace.linked)


def _linked(result: ToolExecutionResult, linked: Callable[[str], str]) -> ToolExecutionResult:
    """Return a result with other URIs."""
    received: Any = result.received
    if received is not None and received.get("resultType") == "task":
        return result
    if received is not None:
        return ToolExecutionResult.passing_on(_linked_json(received, linked))
    content, model_content = _blocks(result.content, linked), result.model_content
    value = tuple(map(partial(_message, linked=linked), result.value)) if _are_messages(result.value) else result.value
    if content is result.content and model_content is None and value is result.value:
        return result
    shortened = None if model_content is None else _blocks(model_content, linked)
    return replace(result, content=content, model_content=shortened, value=value)


def _linked_json(received: Json, linked: Callable[[str], str]) -> Any:
    """Return the result of another server with other URIs."""
    if isinstance(received, ReceivedContents):
        return received.with_uris(linked)
    block = partial(localized_json, local=linked)
    if isinstance(received, ReceivedMessages):
        messages = [{**each, "content": block(each["content"])} for each in received["messages"]]
        return ReceivedMessages.of({**received, "messages": messages})
    return ReceivedResult.of({**received, "content": [block(each) for each in received["content"]]})


def _blocks(content: tuple[Content, ...], linked: Callable[[str], str]) -> tuple[Content, ...]:
    return tuple(localized(block, linked) for block in content) if any(map(_has_uri, content)) else content


def _has_uri(block: Content) -> bool:
    return bool(getattr(block, "uri", None))


def _are_messages(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], PromptMessage)


def _message(message: PromptMessage, linked: Callable[[str], str]) -> PromptMessage:
    return replace(message, content=localized(message.content, linked)) if _has_uri(message.content) else message
