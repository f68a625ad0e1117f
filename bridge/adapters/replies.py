"""Tool calls in a reply of a provider's own SDK: `openai` or `anthropic`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.adapters.calls import run
from bridge.errors import DefinitionError
from bridge.models.conversation import conversation_of
from bridge.service.approval import Verdict
from bridge.service.chat_model import ChatRequest
from bridge.service.messages import ToolExecutionResultMessage
from bridge.text import short_repr
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.context import InvocationContext
from bridge.tools.execution import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.models.conversation import Conversation
    from bridge.models.provider_schemas import ProviderRequest, ProviderSchemas
    from bridge.service.approval import ApprovalPolicy
    from bridge.tools.calls import ToolExecutionRequest
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

T = TypeVar("T")
_MAX_ID_CHARS = 1_000
"""The ids of a reply are sent back as they are."""
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError)


@dataclass(frozen=True, slots=True)
class _JsonReply:
    """A reply of an API as JSON, with the method by which the SDKs' objects give it."""

    content: Mapping[str, Any]

    def to_dict(self, **_: object) -> Json:
        """Return the JSON."""
        return dict(self.content)


def read_reply(reply: object, read: Callable[[Any], T], kind: str) -> T:
    """Read a complete reply: an object of a provider's SDK, or the JSON of one as a mapping.

    Args:
        reply: The reply.
        read: Reads an object of the SDK.
        kind: Name of the object's class, for messages.

    Raises:
        DefinitionError: It is neither.
    """
    try:
        return read(_JsonReply(reply) if isinstance(reply, Mapping) else reply)
    except _MALFORMED as error:
        problem = f"{type(error).__name__}: {error}"
        raise DefinitionError(
            f"expected a complete {kind} of the SDK, or its JSON as a dict, not {short_repr(reply)} ({problem})"
        ) from error


def request_with(box: ToolBox, schemas: ProviderSchemas) -> ProviderRequest:
    """Prepare a request without messages for a provider: the definitions of the tools, and their provider's names."""
    chat = ChatRequest(messages=(), tool_specifications=tuple(tool.specification for tool in box))
    return schemas.prepared(chat, conversation_of(chat), "")


async def run_all(
    box: ToolBox,
    requests: Iterable[ToolExecutionRequest],
    *,
    approval: ApprovalPolicy | None = None,
    context: InvocationContext | None = None,
    policy: ExecutionPolicy = LOCAL,
) -> list[tuple[ToolExecutionRequest, ToolExecutionResult]]:
    """Run the calls of one reply, one after another; a call that is not approved has the reason as its result."""
    context = context or InvocationContext()
    return [(request, await _result(box, request, context, approval, policy)) for request in requests]


async def _result(
    box: ToolBox,
    request: ToolExecutionRequest,
    context: InvocationContext,
    approval: ApprovalPolicy | None,
    policy: ExecutionPolicy,
) -> ToolExecutionResult:
    tool = box.find(request.name)
    decision = None if approval is None or tool is None else await approval.decide(request, tool, context)
    if decision is not None and decision.verdict is not Verdict.YES:
        return ToolExecutionResult.error(decision.words)
    return (await run(box, request, context, policy)).result


def conversation_with(
    results: Iterable[tuple[ToolExecutionRequest, ToolExecutionResult]], request: ProviderRequest
) -> Conversation:
    """Return results as the messages of a conversation, with the names of the request."""
    messages = tuple(ToolExecutionResultMessage.of(*each) for each in results)
    conversation = conversation_of(ChatRequest(messages=messages), max_id_chars=_MAX_ID_CHARS)
    return replace(conversation, names={**conversation.names, **request.conversation.names})
