"""Handlers of server requests, in both eras.

A handler gets the request and the context of the call that it belongs to, and returns the answer. A capability is
declared to servers only if it has a handler (MCP, Client Features).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import ToolError, WireError
from bridge.protocol.versions import INVALID_PARAMS, MODERN_VERSIONS
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, Roots, Sampling, SamplingAnswer, UrlElicitation
from bridge.wire.questions import answer_to_wire, question_from_wire
from bridge.wire.tasks import TASKS_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

ElicitationHandler = Callable[[Elicitation | UrlElicitation, InvocationContext], Awaitable[ElicitationAnswer]]
SamplingHandler = Callable[[Sampling, InvocationContext], Awaitable[SamplingAnswer]]
RootsHandler = Callable[[InvocationContext], Awaitable[Sequence[Root]]]

_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHandlers:
    """Handlers of server requests; capabilities without a handler are not declared.

    The context is that of the call that the request belongs to, if it is known. In the modern era and over streamable
    HTTP it always is; elsewhere only while all running and recently cancelled calls are of the same remote client.
    Otherwise the context is empty.
    """

    elicitation: ElicitationHandler | None = None
    """Asks the user: a form to fill in, or a page to visit."""
    sampling: SamplingHandler | None = None
    """Requests a completion from the model."""
    sampling_features: Collection[Literal["tools", "context"]] = ()
    """Supported features of sampling: tools in the request, context of servers. They are declared as well."""
    roots: RootsHandler | None = None
    """Returns the root folders."""
    extensions: Mapping[str, Json] = field(default_factory=dict)
    """Extensions that are declared to servers, with their settings; what uses this connection implements them."""

    def capabilities(self, version: str, further: Mapping[str, Json]) -> Json:
        """Return the capabilities that are declared in a version, with further extensions: those with a handler."""
        extensions = {**self.extensions, **further}
        if version in MODERN_VERSIONS:
            extensions[TASKS_EXTENSION] = {}
        declared: Json = {"extensions": extensions} if extensions else {}
        if self.elicitation is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self.sampling is not None:
            declared["sampling"] = {feature: {} for feature in self.sampling_features}
        if self.roots is not None:
            declared["roots"] = {"listChanged": True}
        return declared

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        """Answer one server request.

        Raises:
            ToolError: There is no handler for it, or the handler refuses.
        """
        match question:
            case Elicitation() | UrlElicitation() if self.elicitation is not None:
                return await self.elicitation(question, context)
            case Sampling() if self.sampling is not None:
                if (question.tools or question.tool_choice) and "tools" not in self.sampling_features:
                    raise ToolError("the model of this client does not support tools")
                return await self.sampling(question, context)
            case Roots() if self.roots is not None:
                return tuple(await self.roots(context))
            case _:
                raise ToolError(f"this client does not support requests of the kind {type(question).__name__}")


class QuestionRefusedError(Exception):
    """A server request cannot be answered; the message may be sent to the server.

    Attributes:
        code: Code of the JSON-RPC error.
        data: Data of the JSON-RPC error.
    """

    def __init__(self, message: str, code: int = INVALID_PARAMS, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


async def answer_question(handlers: ClientHandlers, wire: Mapping[str, Any], context: InvocationContext) -> Json:
    """Answer a server request in MCP's form, ``{"method": …, "params": …}``; returns its result.

    Raises:
        QuestionRefusedError: The request is malformed or unsupported, or the handler failed, which is logged.
    """
    try:
        return answer_to_wire(await handlers.answer(question_from_wire(wire), context))
    except QuestionRefusedError:
        raise
    except (WireError, ToolError) as error:
        raise QuestionRefusedError(str(error)) from error
    except Exception as error:
        _logger.exception("the handler of %r failed", wire.get("method"))
        raise QuestionRefusedError("the handler of the request failed") from error
