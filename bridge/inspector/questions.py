"""Questions of servers that are answered in the page: elicitation, sampling, roots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import anyio

from bridge.client.connection.handlers import ClientHandlers
from bridge.errors import ToolError
from bridge.inspector.page_json import page_json
from bridge.tools.questions import ElicitationAnswer, Roots, SamplingAnswer
from bridge.wire.questions import answer_from_wire, question_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Answer, Question, Root
    from bridge.types import Json

REQUEST_PARAMETER = "bridge.inspector.request"
"""Invocation parameter with the number of the page's request that a question belongs to."""


MAX_OPEN = 100
"""Maximum open questions; further ones are refused."""
MAX_OPEN_CHARS = 16 * 1024 * 1024
"""Maximum characters of the open questions as JSON."""


class _OpenQuestion:
    """A question that waits for its answer."""

    def __init__(self, number: int, server: str, question: Question, request: int | None) -> None:
        self.question = question
        self.answered = anyio.Event()
        self.answer: Answer | None = None
        self.json: Json = {"number": number, "server": server, "request": request, **question_to_wire(question)}
        self.chars = len(page_json(self.json))


class Questions:
    """Open questions of all servers.

    Args:
        publish: Called with the kind and the data of an event when a question is asked or is over.
    """

    def __init__(self, publish: Callable[[str, Json], None]) -> None:
        self._publish = publish
        self._open: dict[int, _OpenQuestion] = {}
        self._count = 0

    def handlers(self, server: str) -> ClientHandlers:
        """Handlers of one server's requests, which wait for an answer of the page."""
        return ClientHandlers(
            elicitation=partial(self._elicited, server),
            sampling=partial(self._sampled, server),
            roots=partial(self._listed_roots, server),
        )

    def open_questions(self) -> list[Json]:
        """The open questions, as JSON for the page."""
        return [each.json for each in self._open.values()]

    def answer(self, number: int, wire: Json | None) -> None:
        """Answer a question.

        Args:
            number: The number of the question.
            wire: The result as MCP's JSON; None to refuse.

        Raises:
            KeyError: The question is no longer open.
            WireError: The answer does not match the question.
        """
        asked = self._open[number]
        asked.answer = None if wire is None else answer_from_wire(asked.question, wire)
        asked.answered.set()

    async def _elicited(self, server: str, question: Question, context: InvocationContext) -> ElicitationAnswer:
        return cast("ElicitationAnswer", await self._ask(server, question, context))

    async def _sampled(self, server: str, question: Question, context: InvocationContext) -> SamplingAnswer:
        return cast("SamplingAnswer", await self._ask(server, question, context))

    async def _listed_roots(self, server: str, context: InvocationContext) -> tuple[Root, ...]:
        return cast("tuple[Root, ...]", await self._ask(server, Roots(), context))

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
            self._publish("question-over", {"number": number})
        if asked.answer is None:
            raise ToolError("the user refused to answer")
        return asked.answer
