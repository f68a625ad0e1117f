"""Channel of a call that is, or may become, a task.

Until the task is created, it passes everything to the channel of the request; while the task is stored, the call waits
before it reports or asks. Afterwards, progress becomes the task's
status message, log messages stay in this process, and questions wait for their answers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.errors import WireError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import MISSING_CAPABILITY
from bridge.server.channel import missing_capability
from bridge.server.tasks.answers import DECLINED, refused_answer
from bridge.text import clip
from bridge.tools.channel import Channel, LocalChannel
from bridge.tools.forms import MisfitError
from bridge.tools.questions import Elicitation, InputRequired, fitting
from bridge.wire.questions import answer_from_wire, question_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.channel import LogLevel
    from bridge.tools.questions import Answer, Question
    from bridge.tools.session import SessionState
    from bridge.types import Json

MAX_MESSAGE_CHARS = 1000
"""Maximum length of a status message."""

_LOCAL = LocalChannel()


class TaskChannel(Channel):
    """Channel of one call; on asyncio.

    Args:
        capabilities: Capabilities of the client.
        answers: Answers that the client has given already, by key, in MCP's JSON.
    """

    def __init__(self, capabilities: Mapping[str, Any], answers: Mapping[str, Json]) -> None:
        self._capabilities = capabilities
        self._answers = dict(answers)
        self._asked: dict[str, _Asked] = {}
        self._request: Channel | None = None
        self._changed: Callable[[], None] = lambda: None
        self._is_decided = asyncio.Event()
        self._is_decided.set()
        self.has_ended = False
        """True once the call ends with its request: by questions, whose answers its next round brings, or by a task of
        another server."""
        self._is_task = asyncio.Event()
        self.wants_task = asyncio.Event()
        """Set when the function calls `start_task`."""
        self.message: str | None = None
        """The last progress."""
        self.state: SessionState | None = None
        """State of the session of the client; None if it has none."""

    # --- in the call --------------------------------------------------------------------------------------------------

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress to the client of the request, or set the status message of the task."""
        await self._is_decided.wait()
        if self._request is not None:
            await self._request.progress(progress, total, message)
            return
        of_total = "" if total is None else f" of {total:g}"
        text = clip(message or f"{progress:g}{of_total}", MAX_MESSAGE_CHARS)
        to_json(text)  # raises for a lone surrogate
        self.message = text
        self._changed()

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message to the client of the request; of a task, write it to this process's log."""
        await (_LOCAL if self._request is None else self._request).log(level, data, logger)

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification to the client of the request; that of a task gets none."""
        if self._request is not None:
            await self._request.notify(method, params)

    async def start_task(self) -> None:
        """Create the task of this call, if that is possible."""
        if self._request is not None:
            self.wants_task.set()
            await self._is_task.wait()

    async def ends_request(self) -> bool:
        """Return True if the result answers the request, and become no task then."""
        await self._is_decided.wait()
        self.has_ended = self._request is not None
        return self.has_ended

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask the client; in a task, wait for the answers. A key that was answered before is not asked again.

        Raises:
            InputRequired: The call is no task yet, and the answers come with its next round.
            CallRefused: The client lacks a capability.
            ToolError: The client cannot be asked.
        """
        await self._is_decided.wait()
        if self._request is not None:
            try:
                return await self._request.ask(questions)
            except InputRequired:
                await self._is_decided.wait()
                if self._request is not None:
                    self.has_ended = True
                    raise
        for question in questions.values():
            self._check_capability(question)
        waiting: list[_Asked] = []
        try:
            for key, question in questions.items():
                if key not in self._answers:
                    waiting.append(self._asked_for(key, question))
            if waiting:
                self._changed()
                await asyncio.wait([each.answered for each in waiting])
        finally:
            for each in waiting:
                self._leave(each)
        return {key: answer_from_wire(question, self._answers[key]) for key, question in questions.items()}

    def _check_capability(self, question: Question) -> None:
        if (required := missing_capability(question, self._capabilities)) is not None:
            (name,) = required
            message = f"this call needs a client with the capability {name!r}"
            raise CallRefused(ProtocolError(MISSING_CAPABILITY, message, {"requiredCapabilities": required}))

    def _asked_for(self, key: str, question: Question) -> _Asked:
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = _Asked(key, question)
        asked.waiting += 1
        return asked

    def _leave(self, asked: _Asked) -> None:
        """Withdraw a question for whose answer nobody waits any more."""
        asked.waiting -= 1
        if not (asked.waiting or asked.answered.done()):
            del self._asked[asked.key]
            self._changed()

    # --- outside of the call ------------------------------------------------------------------------------------------

    def connect(self, request: Channel) -> None:
        """Pass everything to the channel of the request, until `become_task`."""
        self._request = request

    def take_answers_of(self, request: Channel) -> None:
        """Take the answers that the client has sent with its requests, so that they are not asked for again."""
        self._answers |= request.answers

    def begin_task(self) -> None:
        """Let the call wait before it reports or asks, until `become_task` or `stay_request`."""
        self._is_decided.clear()

    def become_task(self, changed: Callable[[], None]) -> None:
        """Pass nothing to the request any more, and call a function after each change of the task's state."""
        if self._request is not None:
            self.take_answers_of(self._request)
        self._request, self._changed = None, changed
        self._is_decided.set()
        self._is_task.set()

    def stay_request(self) -> None:
        """Let `start_task` return although no task could be created."""
        self._is_decided.set()
        self._is_task.set()

    @property
    def is_request(self) -> bool:
        """True if the call is no task."""
        return self._request is not None

    @property
    def questions(self) -> dict[str, Json]:
        """The open questions in MCP's JSON, by key."""
        return {key: asked.wire for key, asked in self._asked.items()}

    @property
    def answers(self) -> Mapping[str, Json]:
        """The answers so far, by key, in MCP's JSON."""
        return self._answers

    def checked(self, answers: Mapping[str, Json]) -> dict[str, Json]:
        """Return the answers to open questions; others are ignored.

        Raises:
            ProtocolError: One does not match its question, or does not fit it for the first time; the question stays
                open. The second one counts as declined.
        """
        found = {key: answer for key, answer in answers.items() if key in self._asked}
        for key, answer in found.items():
            asked = self._asked[key]
            try:
                fitting(asked.question, answer_from_wire(asked.question, answer))
            except MisfitError as error:
                if asked.is_again and isinstance(asked.question, Elicitation):
                    found[key] = DECLINED
                    continue
                asked.is_again = True
                raise refused_answer(key, error) from None
            except WireError as error:
                raise refused_answer(key, error) from None
        return found

    def answer(self, answers: Mapping[str, Json]) -> None:
        """Give the call answers, which were checked."""
        for key, answer in answers.items():
            if (asked := self._asked.pop(key, None)) is not None:
                self._answers[key] = answer
                asked.answered.set_result(None)
        self._changed()

    def remember(self, answers: Mapping[str, Json]) -> None:
        """Give the call answers that were checked, also to questions that are not open now."""
        self._answers |= {key: answer for key, answer in answers.items() if key not in self._asked}
        self.answer(answers)

    # --- for the context ----------------------------------------------------------------------------------------------

    @property
    def wants_logs(self) -> bool:
        """True if the client may want log messages."""
        return self._request is not None and self._request.wants_logs

    @property
    def session(self) -> SessionState | None:
        """State of the session of the client; None if it has none."""
        return self.state

    @property
    def peer(self) -> object | None:
        """Identifies the client across its calls; None if it is unknown."""
        return None if self._request is None else self._request.peer


class _Asked:
    """An open question."""

    def __init__(self, key: str, question: Question) -> None:
        self.key = key
        self.question = question
        self.wire = question_to_wire(question)
        to_json(self.wire)  # raises if it cannot be sent
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting = 0
        """Number of subtasks of the call that wait for the answer."""
        self.is_again = False
        """True after an answer that does not fit."""
