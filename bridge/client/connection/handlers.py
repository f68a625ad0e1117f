"""Handlers: who answers what a server asks, in both eras.

A handler gets the question and the context of the call from within which it is asked, and returns the answer. The
capability is declared to servers only where there is a handler (MCP, Client Features).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import ToolError, WireError
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, Roots, Sampling, SamplingAnswer, UrlElicitation
from bridge.wire.questions import answer_to_wire, question_from_wire

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
    """What this side can be asked. What has no handler is not offered to servers.

    The context is that of the call that asks, where it can be told: always in the modern era and over streamable HTTP;
    elsewhere only while a single call is under way, or where all calls under way are of the same remote client, and
    only where no call of anybody else was given up with which the server may go on. Otherwise it is an empty one.
    """

    elicitation: ElicitationHandler | None = None
    """Asks the person: a form to fill in, or a page to visit."""
    sampling: SamplingHandler | None = None
    """Asks the model."""
    sampling_features: Collection[Literal["tools", "context"]] = ()
    """What that does beside: let the model use the question's tools, add the context of servers. Declared likewise."""
    roots: RootsHandler | None = None
    """Says which folders are in play."""

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        """Answer one question.

        Raises:
            ToolError: Nobody here answers that; or what a handler raises to say no.
        """
        match question:
            case Elicitation() | UrlElicitation() if self.elicitation is not None:
                return await self.elicitation(question, context)
            case Sampling() if self.sampling is not None:
                if (question.tools or question.tool_choice) and "tools" not in self.sampling_features:
                    raise ToolError("the model that is asked here cannot use tools")
                return await self.sampling(question, context)
            case Roots() if self.roots is not None:
                return tuple(await self.roots(context))
            case _:
                raise ToolError(f"nobody here answers a question of the kind {type(question).__name__}")


class QuestionRefusedError(Exception):
    """A server's question has no answer; its text is fit for the server."""


async def answer_question(handlers: ClientHandlers, wire: Mapping[str, Any], context: InvocationContext) -> Json:
    """Answer a question as MCP writes it.

    Args:
        handlers: Who answers.
        wire: The request, ``{"method": …, "params": …}``.
        context: The context of the call that asks.

    Returns:
        The result of the request.

    Raises:
        QuestionRefusedError: It is malformed, nobody answers it, or the handler failed, which has been logged.
    """
    try:
        return answer_to_wire(await handlers.answer(question_from_wire(wire), context))
    except (WireError, ToolError) as error:
        raise QuestionRefusedError(str(error)) from error
    except Exception as error:
        _logger.exception("the handler of %r failed", wire.get("method"))
        raise QuestionRefusedError("the handler of the question failed") from error
