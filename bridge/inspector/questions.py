"""Questions of servers that are answered in the page: elicitation, sampling, roots."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.connection.handlers import ClientHandlers
from bridge.errors import ToolError, WireError
from bridge.inspector.page_json import page_json
from bridge.models.provider import ProviderChatModel
from bridge.models.sampling import sampling_with
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, Roots, Sampling, fitting
from bridge.wire.extension import APPS
from bridge.wire.questions import answer_from_wire, answer_to_wire, question_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.service.chat_model import ChatModel
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

REQUEST_PARAMETER = "bridge.inspector.request"
"""Invocation parameter with the number of the page's request that a question belongs to."""

MAX_OPEN = 100
"""Maximum open questions; further ones are refused."""
MAX_OPEN_CHARS = 16 * 1024 * 1024
"""Maximum characters of the open questions as JSON."""


@dataclass(frozen=True, slots=True)
class SamplingModel:
    """Chat model that can answer in the place of a person."""

    name: str
    """Name that the page shows, such as ``openai:gpt-5.1``."""
    model: ChatModel

    async def aclose(self) -> None:
        """Close the connections of the model, if it has any."""
        if isinstance(self.model, ProviderChatModel):
            await self.model.aclose()


class _OpenQuestion:
    """A question that waits for its answer."""

    def __init__(self, number: int, server: str, question: Question, request: int | None) -> None:
        self.question = question
        self.answered = anyio.Event()
        self.proposals: set[anyio.CancelScope] = set()
        self.answer: Answer | None = None
        self.json: Json = {"number": number, "server": server, "request": request, **question_to_wire(question)}
        self.chars = len(page_json(self.json))


class Questions:
    """Open questions of all servers.

    Args:
        publish: Called with the kind and the data of an event when a question is asked or is over.
        model: Proposes answers to sampling requests; None for answers by hand alone.
    """

    def __init__(self, publish: Callable[[str, Json], None], model: SamplingModel | None = None) -> None:
        self._publish = publish
        self._model = model
        self._open: dict[int, _OpenQuestion] = {}
        self._count = 0

    def handlers(self, server: str) -> ClientHandlers:
        """Handlers of one server's requests, which wait for an answer of the page."""
        ask: Any = partial(self._ask, server)  # an answer has the type of its question
        return ClientHandlers(
            elicitation=ask,
            sampling=ask,
            sampling_features=["tools"] if self._model is not None else [],
            roots=partial(ask, Roots()),
            extensions=(APPS,),
        )

    def open_questions(self) -> list[Json]:
        """The open questions, as JSON for the page."""
        return [each.json for each in self._open.values()]

    def schema(self, number: int) -> Mapping[str, Any]:
        """The schema of a form.

        Raises:
            KeyError: The question is no longer open, or is no form.
        """
        match self._open[number].question:
            case Elicitation(schema=schema):
                return schema
        raise KeyError(number)

    async def proposal(self, number: int) -> Json:
        """An answer of the model to a sampling request, as MCP's JSON; the user may change it before it is sent.

        Raises:
            KeyError: The question is no longer open; also if that happens while the model is answering.
            WireError: There is no model, or the question is not for one.
            ChatModelError: The model failed.
            ToolError: The request is malformed, or the model's reply is unusable.
        """
        asked = self._open[number]
        if self._model is None or not isinstance(asked.question, Sampling):
            raise WireError("there is no model for this question; start `bridge inspect` with --model")
        sample = sampling_with(self._model.model)
        with anyio.CancelScope() as scope:
            asked.proposals.add(scope)
            try:
                return answer_to_wire(await sample(asked.question, InvocationContext()))
            finally:
                asked.proposals.discard(scope)
        raise KeyError(number)

    def answer(self, number: int, wire: Json | None) -> None:
        """Answer a question.

        Args:
            number: The number of the question.
            wire: The result as MCP's JSON; None to refuse.

        Raises:
            KeyError: The question is no longer open.
            WireError: The answer does not match the question, or does not fit its form.
        """
        asked = self._open[number]
        asked.answer = None if wire is None else fitting(asked.question, answer_from_wire(asked.question, wire))
        asked.answered.set()

    async def _ask(self, server: str, question: Question, context: InvocationContext) -> Answer:
        """Show a question and wait for its answer; a cancelled call withdraws it.

        Raises:
            ToolError: The user refused, or too many questions are open.
        """
        self._count += 1
        number, request = self._count, context.parameters.get(REQUEST_PARAMETER)
        asked = _OpenQuestion(number, server, question, request)
        open_chars = asked.chars + sum(each.chars for each in self._open.values())
        if len(self._open) >= MAX_OPEN or open_chars > MAX_OPEN_CHARS:
            raise ToolError("too many questions are open, or they are too long; answer those that are shown first")
        self._open[number] = asked
        self._publish("question", asked.json)
        try:
            await asked.answered.wait()
        finally:
            del self._open[number]
            for scope in asked.proposals:
                scope.cancel()
            self._publish("question-over", {"number": number})
        if asked.answer is None:
            raise ToolError("the user refused to answer")
        return asked.answer
