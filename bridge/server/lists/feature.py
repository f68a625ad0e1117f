"""The part that resources and prompts share: both are found by access, and run like tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from bridge.server.lists.listing import Listing, ListKind, Views
from bridge.text import clip
from bridge.tools.box import Box
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.executors import CallableExecutor
from bridge.tools.labels import version_in
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.prompts.prompt import Prompt
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

B = TypeVar("B", bound=Box[Any])
T = TypeVar("T", bound="Tool | Resource | ResourceTemplate | Prompt")


class View(NamedTuple, Generic[B]):
    """The part of a box that some callers see, and its lists by member of their results."""

    box: B
    lists: Mapping[str, Listing[Any]]


def views_of(box: B, page_size: int | None, *kinds: ListKind[Any]) -> Views[B, View[B]]:
    """Return the views of a box, with lists of these kinds."""
    return Views(box, lambda part: View(part, {kind.member: Listing(part, kind, page_size) for kind in kinds}))


class Running(Protocol):
    """Runs what reads, renders or completes, and writes its results: a `bridge.server.core.ServerCore`."""

    async def produce(
        self, tool: Tool, request: ToolExecutionRequest, context: InvocationContext, *, is_known: bool = True
    ) -> ToolExecutionResult:
        """Return the result, within the limits of calls.

        Args:
            tool: Runs it.
            request: Its arguments.
            context: Context of the request.
            is_known: False for a name that does not exist, which limits must not store.

        Raises:
            ArgumentsError: The arguments are invalid.
            ResourceNotFoundError: The function says so.
            ToolError: The function failed with a message for the client.
            ToolTimeoutError: It took too long.
            ProtocolError: It failed otherwise, which has been logged.
        """
        ...

    def write_produced(self, name: str, wire: Json, write: Callable[[Json], bytes]) -> bytes:
        """Write a result, within its limit.

        Raises:
            ProtocolError: It is too long, or cannot be sent.
        """
        ...


class Served:
    """Base of the resources and the prompts of a server."""

    def __init__(self, core: Running) -> None:
        self._core = core

    async def _produced(
        self,
        tool: Tool,
        request: ToolExecutionRequest,
        context: InvocationContext,
        what: Callable[[], str],
        absent: Callable[[], ProtocolError],
        *,
        is_known: bool = True,
    ) -> ToolExecutionResult:
        """Run what reads, renders or completes; the arguments are those of `Running.produce` and `refusal`.

        Raises:
            ProtocolError: It failed; ``absent()`` if it says that there is no such resource.
        """
        try:
            return await self._core.produce(tool, request, context, is_known=is_known)
        except (ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError) as error:
            raise refusal(error, what, absent) or error from None

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


def refusal(error: BaseException, what: Callable[[], str], absent: Callable[[], ProtocolError]) -> ProtocolError | None:
    """Return the error to answer if reading, rendering or completing has failed.

    Args:
        error: What was raised.
        what: Returns what was read, rendered or completed, for messages.
        absent: Returns the error for a resource that does not exist.

    Returns:
        None if the error is a bug, a question or a cancellation.
    """
    match error:
        case ProtocolError():
            return error
        case ArgumentsError():
            problems = "; ".join(map(str, error.problems))
            # Without the URI in its data, by which clients recognise a resource that does not exist.
            return ProtocolError(INVALID_PARAMS, f"invalid arguments for {what()}: {problems}")
        case ResourceNotFoundError():
            return absent()
        case ToolError() | ToolTimeoutError():
            return ProtocolError(INTERNAL_ERROR, str(error), absent().data)
        case _:
            return None


def in_version(item: T, versions: Mapping[str, T], meta: Mapping[str, Any], what: str) -> T:
    """Return an item in the version that a request names, if it names one.

    Args:
        item: The newest version.
        versions: All versions; empty for an item without versions, or one of another server, which chooses.
        meta: ``_meta`` of the request.
        what: The item, for the error.

    Raises:
        ProtocolError: There is no such version.
    """
    if not versions or item.server is not None or (version := version_in(meta)) is None:
        return item
    if version not in versions:
        known = ", ".join(versions)
        raise ProtocolError(INVALID_PARAMS, f"{what} has no version {clip(version)!r}; there is {known}")
    return versions[version]


def check_scopes(name: str, access: Access) -> None:
    """Refuse a caller who lacks a scope."""
    if access.missing(name):
        raise ProtocolError(INVALID_REQUEST, f"{name!r} needs a scope that was not granted")
