"""The context of an invocation: who calls, on whose behalf, and the ways back to the caller.

The same object whether the call came from an AI service, stdio or HTTP (LangChain4j's InvocationContext). A tool gets
it by annotating a parameter with `InvocationContext`, under any name; the parameter is hidden from the schema.
"""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args
from uuid import uuid4

import anyio
import anyio.from_thread

from bridge.errors import ToolError
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, Roots, Sampling, SamplingAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.tools.questions import Answer, Question, Resumption, SamplingMessage

_logger = logging.getLogger("bridge.tools")

_EMPTY: Mapping[str, Any] = MappingProxyType({})

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severities of RFC 5424, as MCP names them."""

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""The severities, least severe first."""


class InvocationParameters(dict[str, Any]):
    """Free data of one invocation, set by the program that invokes and hidden from the model."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as established by whoever let the call in; never by what the call says of itself."""

    name: str
    """What identifies the caller in memories, logs and limits; no two callers have one.

    The name of a key, or the subject of a token; ``client:ID`` where a token is a client's own; with ``@`` and the
    issuer at the end where there may be several of them.
    """
    scopes: frozenset[str] = frozenset()
    """What the caller may do."""
    claims: Mapping[str, Any] = field(default_factory=lambda: _EMPTY, repr=False)
    """What the credential says beside that."""


class Channel(Protocol):
    """The way back to whoever called, while the call runs."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Say how far the call is; dropped where nobody asked to know."""
        ...

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message; dropped where nobody asked to know."""
        ...

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask, and return the answers under the same keys.

        Raises:
            InputRequired: The answers come only when the call is run again.
            ToolError: The caller cannot be asked that.
        """
        ...


class LocalChannel:
    """The channel of a call that nobody listens to: progress is dropped, logs are logged, questions are refused."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it."""

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Log it here."""
        severity = getattr(logging, level.upper(), logging.INFO if level == "notice" else logging.CRITICAL)
        (logging.getLogger(logger) if logger else _logger).log(severity, "%s", data)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:  # noqa: ARG002 - the protocol's
        """Refuse."""
        raise ToolError("this tool needs to ask something, and its caller cannot be asked")


_LOCAL = LocalChannel()


class InvocationContext:
    """What surrounds one call of a tool.

    Attributes:
        memory_id: Which conversation the call belongs to (LangChain4j's memory id); None without one.
        parameters: Free data of the invocation.
        caller: Who calls; None where nobody was asked to prove it.
        headers: The HTTP headers of the call, lower-case; empty elsewhere.
        client_capabilities: What the remote client declared, in MCP's JSON; empty elsewhere.
        meta: What the remote client says in ``_meta``, without what belongs to the protocol: a trace's context, say.
        deadline: When the call has to be done, by `anyio.current_time`; None without a limit.
        round: How many times the call has been run before it reached this point (see `ask`); 0 the first time.
        resumption: What an earlier round left that ended with a state of its own (`InputRequired`); None without one.
        account: Name by which the call counts where callers share places: the caller's, else the network address that
            it came from; empty where only one can call.
    """

    __slots__ = (
        "_cancelled",
        "_channel",
        "_invocation_id",
        "_questions_asked",
        "account",
        "caller",
        "client_capabilities",
        "deadline",
        "headers",
        "memory_id",
        "meta",
        "parameters",
        "resumption",
        "round",
    )

    def __init__(
        self,
        *,
        memory_id: Any = None,
        parameters: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
        headers: Mapping[str, str] = _EMPTY,
        client_capabilities: Mapping[str, Any] = _EMPTY,
        meta: Mapping[str, Any] = _EMPTY,
        channel: Channel = _LOCAL,
        deadline: float | None = None,
        round: int = 0,  # noqa: A002 - the word that the protocol uses
        resumption: Resumption | None = None,
        invocation_id: str | None = None,
        account: str = "",
    ) -> None:
        self.memory_id = memory_id
        self.parameters = (
            parameters if isinstance(parameters, InvocationParameters) else InvocationParameters(parameters or {})
        )
        self.caller = caller
        self.headers = headers
        self.client_capabilities = client_capabilities
        self.meta = meta
        self.deadline = deadline
        self.round = round
        self.resumption = resumption
        self.account = account or ("" if caller is None else caller.name)
        self._channel = channel
        self._invocation_id = invocation_id
        self._cancelled = False
        self._questions_asked = 0

    @property
    def invocation_id(self) -> str:
        """What identifies the invocation in logs and events; made when first read."""
        if self._invocation_id is None:
            self._invocation_id = uuid4().hex
        return self._invocation_id

    @property
    def cancelled(self) -> bool:
        """The caller no longer waits. A function in a worker thread cannot be stopped: it looks here and returns."""
        return self._cancelled

    @property
    def has_listener(self) -> bool:
        """Somebody may hear progress and log messages; without one they end in this process's log."""
        return self._channel is not _LOCAL

    @property
    def peer(self) -> object | None:
        """Who would be asked: one and the same object for all calls of one remote client; None where nobody knows."""
        return getattr(self._channel, "peer", None)

    def cancel(self) -> None:
        """Mark the call as no longer awaited."""
        self._cancelled = True

    def fork(self) -> InvocationContext:
        """A context for one call within this invocation, which can be cancelled without cancelling the others."""
        _ = self.invocation_id
        return copy(self)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call is.

        Args:
            progress: How much is done, in any unit; grows with each report.
            total: How much there is, in the same unit, where known.
            message: What is being done, for people.
        """
        await self._channel.progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to the caller.

        Args:
            level: How severe it is.
            data: Text, or any JSON data.
            logger: The name of the part that speaks.
        """
        await self._channel.log(level, data, logger)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask the caller, and wait for the answers.

        With a client of the protocol's 2026-07-28 revision nothing can wait: the call ends here, and when the answers
        have come **the function is run again from its start**, where this returns at once. So keys must be stable and
        their order deterministic, and what is done before a question is done again on every round: ask first, write
        afterwards, or look at `round`.

        Args:
            questions: What to ask, each under a key of its own within this call.

        Returns:
            The answers under the same keys.

        Raises:
            ToolError: The caller cannot be asked.
        """
        return await self._channel.ask(questions)

    async def elicit(
        self, message: str, schema: Mapping[str, Any] | type, *, key: str | None = None
    ) -> ElicitationAnswer:
        """Ask the person to fill in a form; see `ask` for what asking entails.

        Args:
            message: What the person reads.
            schema: The form: a JSON Schema, or a type such as a pydantic model or a dataclass of primitives.
            key: What identifies the question within this call; by default its position among the questions.

        Raises:
            ToolError: The caller cannot be asked.
        """
        if isinstance(schema, type):
            from bridge.tools.schema.json_schema import inlined, schema_of  # noqa: PLC0415 - only for those who ask

            schema = inlined(schema_of(schema))  # a form has no definitions
        answer = await self._ask_one(Elicitation(message, schema), key)
        assert isinstance(answer, ElicitationAnswer)
        return answer

    async def sample(
        self, messages: Sequence[SamplingMessage], *, max_tokens: int, key: str | None = None, **options: Any
    ) -> SamplingAnswer:
        """Ask the caller's model for a completion; see `ask` for what asking entails.

        Args:
            messages: The conversation to continue.
            max_tokens: How many tokens the answer may have at most.
            key: What identifies the question within this call; by default its position among the questions.
            options: The other fields of `Sampling`.

        Raises:
            ToolError: The caller cannot be asked.
        """
        answer = await self._ask_one(Sampling(messages, max_tokens, **options), key)
        assert isinstance(answer, SamplingAnswer)
        return answer

    async def roots(self, *, key: str | None = None) -> tuple[Root, ...]:
        """Ask which folders the caller has opened; see `ask` for what asking entails.

        Args:
            key: What identifies the question within this call; by default its position among the questions.

        Raises:
            ToolError: The caller cannot be asked.
        """
        answer = await self._ask_one(Roots(), key)
        assert isinstance(answer, tuple)
        return answer

    async def _ask_one(self, question: Question, key: str | None) -> Answer:
        self._questions_asked += 1
        key = key or f"question-{self._questions_asked}"
        return (await self.ask({key: question}))[key]

    @property
    def blocking(self) -> BlockingContext:
        """The same ways back for a function that runs in a worker thread."""
        return BlockingContext(self)


class BlockingContext:
    """`InvocationContext`'s ways back to the caller for a function in a worker thread: each call blocks the thread."""

    __slots__ = ("_context",)

    def __init__(self, context: InvocationContext) -> None:
        self._context = context

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """See `InvocationContext.progress`."""
        anyio.from_thread.run(self._context.progress, progress, total, message)

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """See `InvocationContext.log`."""
        anyio.from_thread.run(self._context.log, level, data, logger)

    def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """See `InvocationContext.ask`."""
        return anyio.from_thread.run(self._context.ask, questions)

    def elicit(self, message: str, schema: Mapping[str, Any] | type, *, key: str | None = None) -> ElicitationAnswer:
        """See `InvocationContext.elicit`."""
        return anyio.from_thread.run(lambda: self._context.elicit(message, schema, key=key))

    def sample(
        self, messages: Sequence[SamplingMessage], *, max_tokens: int, key: str | None = None, **options: Any
    ) -> SamplingAnswer:
        """See `InvocationContext.sample`."""
        return anyio.from_thread.run(lambda: self._context.sample(messages, max_tokens=max_tokens, key=key, **options))

    def roots(self, *, key: str | None = None) -> tuple[Root, ...]:
        """See `InvocationContext.roots`."""
        return anyio.from_thread.run(lambda: self._context.roots(key=key))
