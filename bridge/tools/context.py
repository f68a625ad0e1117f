"""Invocation context: the caller of a tool, and the channel back to that caller.

It is the same for calls from an AI service, stdio and HTTP (LangChain4j's InvocationContext). A tool receives it
through a parameter annotated with `InvocationContext`, under any name; the parameter is hidden from the schema.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload
from uuid import uuid4

from typing_extensions import TypeVar as DefaultedTypeVar

from bridge.errors import DefinitionError, ToolError
from bridge.tools.blocking_context import BlockingContext
from bridge.tools.caller import Caller, InvocationParameters
from bridge.tools.channel import LocalChannel
from bridge.tools.forms import Form
from bridge.tools.questions import Elicitation, ElicitationAnswer, Roots, Sampling, SamplingAnswer, ask_for_fitting
from bridge.tools.session import MemoryState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from bridge.tools.channel import Channel, ContentsStream, LogLevel, ProgressListener
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.questions import Answer, Question, Resumption, Root, SamplingMessage, SamplingOptions
    from bridge.tools.session import SessionState

_EMPTY: Mapping[str, Any] = MappingProxyType({})

_T = TypeVar("_T")
_App = DefaultedTypeVar("_App", default=Any)
"""Type of the lifespan's value."""


_LOCAL = LocalChannel()


class InvocationContext(Generic[_App]):
    """Context of one call of a tool; ``InvocationContext[App]`` for a type checker, with the type of `lifespan`.

    Attributes:
        memory_id: Conversation that the call belongs to (LangChain4j's memory id); None without one.
        parameters: Arbitrary data of the invocation.
        caller: The authenticated caller; None if no authentication is configured.
        headers: HTTP headers of the call with lower-case names; empty for other transports.
        client_capabilities: Capabilities declared by the remote client, as MCP's JSON; otherwise empty.
        protocol_version: MCP version of the remote client's request; empty if it is unknown, and for other callers.
        meta: The remote client's ``_meta`` without the protocol's own keys; for example a trace context.
        deadline: Time by which the call must finish, on the clock of `anyio.current_time`; None without a limit.
        round: Number of earlier runs of this call (see `ask`); 0 in the first run.
        resumption: State and answers left by an earlier run that raised `InputRequired` with a state; otherwise None.
        request_id: Id by which the server's logs, audit log and traces name the request, made by the server; None if it
            records none.
        account: Name under which the call counts towards per-caller limits: the caller's name, or else the network
            address; empty if there can be only one caller.
        service: Interface and method of the AI service that runs the invocation, ``Assistant.chat``; None outside one.
        timestamp: Start of the AI service's invocation, timezone-aware, UTC; None outside one.
    """

    __slots__ = (
        "_cancelled",
        "_channel",
        "_invocation_id",
        "_lifespan",
        "_on_progress",
        "_questions_asked",
        "account",
        "caller",
        "client_capabilities",
        "deadline",
        "headers",
        "memory_id",
        "meta",
        "parameters",
        "protocol_version",
        "request_id",
        "resumption",
        "round",
        "service",
        "timestamp",
    )

    def __init__(
        self,
        *,
        memory_id: Any = None,
        parameters: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
        headers: Mapping[str, str] = _EMPTY,
        client_capabilities: Mapping[str, Any] = _EMPTY,
        protocol_version: str = "",
        meta: Mapping[str, Any] = _EMPTY,
        channel: Channel = _LOCAL,
        deadline: float | None = None,
        round: int = 0,  # noqa: A002 - MCP's term
        resumption: Resumption | None = None,
        request_id: str | None = None,
        invocation_id: str | None = None,
        account: str = "",
        service: str | None = None,
        timestamp: datetime | None = None,
        lifespan: Lifespan[_App] | None = None,
    ) -> None:
        self.memory_id = memory_id
        self.parameters = (
            parameters if isinstance(parameters, InvocationParameters) else InvocationParameters(parameters or ())
        )
        self.caller = caller
        self.headers = headers
        self.client_capabilities = client_capabilities
        self.protocol_version = protocol_version
        self.meta = meta
        self.deadline = deadline
        self.round = round
        self.resumption = resumption
        self.request_id = request_id
        self.account = account or ("" if caller is None else caller.name)
        self.service = service
        self.timestamp = timestamp
        self._lifespan = lifespan
        self._channel = channel
        self._on_progress: ProgressListener | None = None
        self._invocation_id = invocation_id
        self._cancelled = False
        self._questions_asked = 0

    @property
    def invocation_id(self) -> str:
        """Identifier of the invocation in logs and events; created on first access."""
        if self._invocation_id is None:
            self._invocation_id = uuid4().hex
        return self._invocation_id

    @property
    def interface_name(self) -> str | None:
        """Name of the AI service's interface; None outside one."""
        return self.service and self.service.rpartition(".")[0]

    @property
    def method_name(self) -> str | None:
        """Name of the AI service's method; None outside one."""
        return self.service and self.service.rpartition(".")[2]

    @property
    def lifespan(self) -> _App:
        """Value of the `bridge.lifespan` of the function's module, or else of the server.

        Raises:
            DefinitionError: There is none, or it is not open.
        """
        if self._lifespan is None:
            raise DefinitionError(
                "this call has no lifespan; decorate an async generator function in the module of its function with "
                "@lifespan, or give the server one: run(…, lifespan=…)"
            )
        return self._lifespan.value

    def within(self, lifespan: Lifespan[Any]) -> InvocationContext:
        """Return the context for a function with this lifespan: the context itself, unless it has another."""
        context = self if self._lifespan in (None, lifespan) else self.fork()
        context._lifespan = lifespan  # noqa: SLF001 - of the same class
        return context

    @property
    def cancelled(self) -> bool:
        """True once the caller no longer waits; a function in a worker thread should check this and return."""
        return self._cancelled

    @property
    def has_listener(self) -> bool:
        """True if progress and log messages may reach a remote caller; otherwise they stay in this process."""
        return self._channel.has_listener

    @property
    def wants_logs(self) -> bool:
        """True if a remote caller may want log messages; otherwise they need not be requested from other servers."""
        return self._channel.wants_logs

    @property
    def peer(self) -> object | None:
        """Object that identifies the remote client across its calls; None if unknown."""
        return self._channel.peer

    @property
    def session(self) -> SessionState:
        """Values that functions keep for the caller's session: ``await context.session.get("cart", [])``.

        A session is one connection over stdio and SSE, and one ``Mcp-Session-Id`` over HTTP; for clients of the
        2026-07-28 revision over HTTP, which have none, it is an authenticated caller. Without a server, as in an AI
        service, it is the invocation.

        Raises:
            ToolError: The caller has no session.
        """
        if isinstance(self._channel, LocalChannel):
            return MemoryState(None, lambda: self.parameters.session_values)
        if (found := self._channel.session) is None:
            raise ToolError(
                "this call has no session, whose state its function needs: authenticate, or connect by a version of "
                "the protocol with sessions"
            )
        return found

    @property
    def session_id(self) -> str | None:
        """Id of the session that `session` belongs to; None if the caller has no session, and without a server."""
        found = self._channel.session
        return None if found is None else found.id

    @property
    def contents_stream(self) -> ContentsStream | None:
        """Way of large contents of a resource to the caller before the read has ended; None if there is none."""
        return self._channel.contents_stream

    def connect(self, channel: Channel) -> Channel:
        """Set the channel for what the tool reports, logs and asks, before it is run; return the previous one."""
        previous, self._channel = self._channel, channel
        return previous

    def cancel(self) -> None:
        """Mark the call as cancelled."""
        self._cancelled = True

    def fork(self, on_progress: ProgressListener | None = None, *, channel: Channel | None = None) -> InvocationContext:
        """Create a context for one call of this invocation that can be cancelled independently of the others.

        Args:
            on_progress: Called with each progress report of the call, after it was sent to the caller.
            channel: Connection back to the caller, in place of this context's own and its ``on_progress``.
        """
        _ = self.invocation_id
        fork = self.__class__.__new__(self.__class__)
        for name in InvocationContext.__slots__:  # copy.copy takes three times as long
            setattr(fork, name, getattr(self, name))
        if channel is not None:
            fork._channel, fork._on_progress = channel, None  # noqa: SLF001 - of the same class
        if on_progress is not None:
            fork._on_progress = on_progress  # noqa: SLF001 - of the same class
        return fork

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller.

        Args:
            progress: Amount of work done, in any unit; must increase with each report.
            total: Total amount of work in the same unit, if known.
            message: Description of the current step, for people.
        """
        await self._channel.progress(progress, total, message)
        if self._on_progress is not None:
            await self._on_progress(progress, total, message)

    async def start_task(self) -> None:
        """Answer the caller with a task, whose result it fetches later; see `TaskPolicy.starts_at_once`.

        Later questions do not run the function again. Does nothing in a task, or if the caller does not support tasks.
        """
        await self._channel.start_task()

    async def ends_request(self) -> bool:
        """Return True if the result will answer the caller's request, so that it may itself be a task.

        The call then becomes no task by itself; False if it already has (see `start_task`).
        """
        return await self._channel.ends_request()

    async def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None:
        """Send a log message to the caller.

        Args:
            level: Severity.
            data: Text, or any JSON data.
            logger: Name of the component that logs.
        """
        await self._channel.log(level, data, logger)

    async def notify(self, method: str, params: Mapping[str, Any] = _EMPTY) -> None:
        """Send the caller a notification of an extension of the protocol; ignored without a remote caller.

        Args:
            method: The method: ``notifications/…``.
            params: The parameters, as JSON data.

        Raises:
            DefinitionError: The method is none of a notification.
            ValueError: The parameters cannot be written as JSON.
        """
        if not method.startswith("notifications/"):
            raise DefinitionError(f"the method of a notification begins with 'notifications/', unlike {method!r}")
        await self._channel.notify(method, dict(params))

    async def close_stream(self) -> None:
        """Close the HTTP stream that waits for the result, while the call continues (SEP-1699).

        Proxies and clients need not hold a connection during a long call. The client connects again after a second,
        and receives what it has missed. Close the stream again whenever it should be polled. Ignored where a stream
        cannot be resumed: over stdio, without sessions, and with clients of another revision than 2025-11-25.
        """
        await self._channel.close_stream()

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Send questions to the caller and wait for the answers.

        With clients of MCP's 2026-07-28 revision the call ends here. When the answers arrive, **the function is run
        again from its start**, and this method then returns immediately. Keys must therefore be stable and their order
        deterministic. Everything done before a question is repeated in every run: ask first and write afterwards, or
        check `round`.

        Args:
            questions: The questions, each under a key that is unique within this call.

        Returns:
            The answers under the same keys. A form that does not fit its schema is asked for once more, under its key
            and ``-again``, and then counts as declined.

        Raises:
            DefinitionError: MCP cannot carry a form.
            ToolError: The caller cannot answer questions.
        """
        return await ask_for_fitting(self._channel.ask, questions)

    @overload
    async def elicit(self, message: str, schema: type[_T], *, key: str | None = None) -> ElicitationAnswer[_T]: ...
    @overload
    async def elicit(
        self, message: str, schema: Mapping[str, Any] | None, *, key: str | None = None
    ) -> ElicitationAnswer[dict[str, Any]]: ...
    @overload
    async def elicit(self, message: str, schema: object, *, key: str | None = None) -> ElicitationAnswer: ...
    async def elicit(self, message: str, schema: object, *, key: str | None = None) -> ElicitationAnswer:
        """Ask the user to fill in a form; see `ask` for repeated runs, and for answers that do not fit.

        Args:
            message: Text shown to the user.
            schema: The form: a model or dataclass with primitive fields; a scalar type, an enum or a list of one, for
                one field, ``value``; a list of texts to choose from; a JSON Schema; or None for no fields.
            key: Identifier of the question within this call. Defaults to its position among the questions.

        Raises:
            DefinitionError: MCP cannot carry the form.
            ToolError: The caller cannot answer questions.
        """
        form = Form.of(schema)
        answer = await self._ask_one(Elicitation(message, form.schema, form=form), key)
        assert isinstance(answer, ElicitationAnswer)
        return answer

    async def sample(
        self,
        messages: Sequence[SamplingMessage],
        *,
        max_tokens: int,
        key: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> SamplingAnswer:
        """Ask the caller's model for a completion; see `ask` for repeated runs.

        Args:
            messages: The conversation to continue.
            max_tokens: Maximum number of tokens in the answer.
            key: Identifier of the question within this call. Defaults to its position among the questions.
            options: The other fields of `Sampling`.

        Raises:
            DefinitionError: An option has the wrong type, or is too small.
            ToolError: The caller cannot answer questions.
        """
        answer = await self._ask_one(Sampling(messages, max_tokens, **options), key)
        assert isinstance(answer, SamplingAnswer)
        return answer

    async def roots(self, *, key: str | None = None) -> tuple[Root, ...]:
        """Ask for the folders that the caller has opened; see `ask` for repeated runs.

        Args:
            key: Identifier of the question within this call. Defaults to its position among the questions.

        Raises:
            ToolError: The caller cannot answer questions.
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
        """Blocking versions of the methods above, for functions that run in a worker thread."""
        return BlockingContext(self)
