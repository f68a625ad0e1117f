"""Answers to the questions of tasks that run elsewhere: what fits is passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import WireError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS
from bridge.tools.forms import MisfitError
from bridge.tools.questions import Elicitation, fitting
from bridge.wire.questions import answer_from_wire, question_from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.types import Json

DECLINED: Json = {"action": "decline"}
"""Answer of a user who declines."""


async def checked_answers(
    questions: Mapping[str, Json], answers: Mapping[str, Json], is_first_misfit: Callable[[str], Awaitable[bool]]
) -> dict[str, Json]:
    """Return the answers to open questions; a form that is not filled in correctly twice counts as declined.

    Args:
        questions: The open questions in MCP's JSON, by key.
        answers: Answers in MCP's JSON, by key; those to other questions are left out.
        is_first_misfit: Notes an answer that does not fit, by its key; returns False if one was noted before.

    Raises:
        ProtocolError: An answer does not match its question, or does not fit it for the first time.
    """
    found = {key: answer for key, answer in answers.items() if key in questions}
    for key, answer in found.items():
        question = None
        try:
            question = question_from_wire(questions[key])
            fitting(question, answer_from_wire(question, answer))
        except WireError as error:
            is_misfit = isinstance(error, MisfitError) and isinstance(question, Elicitation)
            if not is_misfit or await is_first_misfit(key):
                raise refused_answer(key, error) from error
            found[key] = DECLINED
    return found


def refused_answer(key: str, error: Exception) -> ProtocolError:
    """Return the error of an answer that is refused, so that its question stays open."""
    return ProtocolError(INVALID_PARAMS, f"the answer {key!r} in inputResponses: {error}")
