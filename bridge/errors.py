"""Errors raised by this package.

    BridgeError
    ├── DefinitionError          a tool or service is defined incorrectly
    │   └── NameClashError       two tools, resources or prompts have the same name
    ├── TargetError              a file, module or command line target has no tools
    ├── ConfigError              a server configuration is invalid; reports all problems
    ├── MissingExtraError        an optional dependency is not installed
    ├── WireError                received or stored data is malformed
    ├── ChatModelError           the provider of a chat model failed
    ├── MemoryStoreError         a store of conversations cannot be read or written
    ├── ServerError              a remote server or its connection failed
    │   ├── ServerUnavailableError   it cannot be started or reached, so that the call never ran
    │   │   └── ServerAuthError      credentials are missing or were rejected
    │   ├── OutcomeUnknownError      the connection broke during a call, which may have run
    │   │   └── ServerTimeoutError   it did not respond in time
    │   ├── ServerAnswerError        its response violates the protocol
    │   ├── ServerRefusedError       it responded with a JSON-RPC error
    │   └── PinMismatchError         its resource or prompt differs from its pin
    ├── InvocationError          an AI service's invocation failed
    │   ├── ToolLimitError       the model requested too many tool calls
    │   ├── ReplyError           the model's reply does not match the method's return type
    │   ├── GuardrailError       a guardrail refused a message or an answer; also a ToolError
    │   └── InvocationTimeoutError  the invocation exceeded its time limit
    └── ToolCallError            a tool call failed
        ├── UnknownToolError     there is no tool with this name
        ├── ArgumentsError       the arguments do not parse or do not validate
        ├── ToolError            raised by a tool's author with a message for the model
        ├── ResultError          the tool's return value cannot be sent
        └── ToolTimeoutError     the tool exceeded its time limit

A programming mistake raises an exception at the place of the mistake. A failed call becomes a result with ``is_error``,
so that the model can correct itself (see `bridge.tools.execution`). Protocol violations by a client are answered with
errors of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class BridgeError(Exception):
    """Base class of all errors of this package."""


class DefinitionError(BridgeError):
    """A tool or service cannot be defined; the message names the object and the remedy."""


_CLASHES = {
    "tools": (
        "are named",
        "rename one (@tool(name=…), or bridge.renamed) or give one source a prefix (bridge.prefixed)",
    ),
    "prompts": ("are named", "give one another name, with @prompt(name=…)"),
    "resources": ("have the URI", "give one another URI"),
    "events": ("are named", "give one another name, with @event(…)"),
}
"""Problem and remedy of a clash, by the noun of a box."""


class NameClashError(DefinitionError):
    """Two items of one box have the same name or URI; the message names both sources."""

    def __init__(self, name: str, first: str, second: str, noun: str = "tools") -> None:
        problem, remedy = _CLASHES[noun]
        super().__init__(f"two {noun} {problem} {name!r}: one from {first}, one from {second}; {remedy}")
        self.name = name


class TargetError(BridgeError):
    """A command line target or configuration entry has no tools; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One problem in a server configuration; never contains values that may be secret."""

    message: str
    """Description and remedy."""
    server: str | None = None
    """Name of the server; None if the problem does not concern a single server."""
    key: str | None = None
    """Location in the server or file: ``args[1]``, ``headers.Authorization``."""
    line: int | None = None
    """Line of a syntax error, from 1."""
    column: int | None = None
    """Column of a syntax error, from 1."""

    def __str__(self) -> str:
        parts = (
            self.line is not None and f"line {self.line}, column {self.column}",
            self.server is not None and f"server {self.server!r}",
            self.key is not None and repr(self.key),
        )
        location = ", ".join(part for part in parts if part)
        return f"{location}: {self.message}" if location else self.message


class ConfigError(BridgeError):
    """A server configuration is invalid; all problems are reported together.

    Attributes:
        source: The file, or another source of the configuration.
        problems: All problems.
    """

    def __init__(self, source: str, problems: Sequence[ConfigProblem]) -> None:
        if len(problems) == 1:
            message = f"{source}: {problems[0]}"
        else:
            message = f"{source} has {len(problems)} problems:" + "".join(f"\n  {problem}" for problem in problems)
        super().__init__(message)
        self.source = source
        self.problems = tuple(problems)


class MissingExtraError(BridgeError, ImportError):
    """A feature needs a package that is not installed; the message names the extra, or the package, to install."""

    def __init__(self, feature: str, package: str, extra: str | None = None) -> None:
        install = package if extra is None else f"'mcp-toolbridge[{extra}]'"
        super().__init__(f"{feature} needs the package {package!r}: pip install {install}")
        self.extra = extra


class WireError(BridgeError, ValueError):
    """Received or stored data does not match the protocol or format; the message shows it."""


class ChatModelError(BridgeError):
    """The provider of a chat model failed.

    Attributes:
        provider: Name of the provider.
        status: HTTP status; None if there was no response.
        request_id: The provider's id of the request, for support.
        retryable: True if a retry may succeed. The provider's SDK has already retried.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        request_id: str | None = None,
        retryable: bool = False,
    ) -> None:
        details = "".join(
            f", {name} {value}" for name, value in (("status", status), ("request", request_id)) if value is not None
        )
        super().__init__(f"{provider}{details}: {message}")
        self.provider = provider
        self.status = status
        self.request_id = request_id
        self.retryable = retryable


class MemoryStoreError(BridgeError):
    """A store of conversations cannot be read or written.

    The file is locked or invalid, the disk is full, or Redis does not respond. The message names the store and the
    reason; the cause is the library's error. Writes are atomic.
    """


class InvocationError(BridgeError):
    """An invocation of an AI service failed; the memory is unchanged."""


class ToolLimitError(InvocationError):
    """The model requested more round trips or more concurrent tool calls than the service allows."""


class ReplyError(InvocationError):
    """The model's reply does not match the method's return type, even after a correction was requested.

    Attributes:
        reply: The last reply; empty with output guardrails, which could not check it.
    """

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(message)
        self.reply = reply


class InvocationTimeoutError(InvocationError, TimeoutError):
    """The invocation exceeded its time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFailure:
    """Details of a remote server's failure, without secrets."""

    server: str
    """Name of the server."""
    phase: str
    """Operation that failed: ``starting``, ``connecting``, ``calling 'add'``."""
    reason: str
    """Short description of the failure."""
    address: str | None = None
    """Command line or URL, redacted."""
    hint: str | None = None
    """Remedy."""
    last_words: tuple[str, ...] = ()
    """Last lines that the child process wrote to stderr."""
    exit_code: int | None = None
    """Exit code of the child process, negative for a signal; None while it runs."""
    is_permanent: bool = False
    """True if a retry cannot succeed without a change of the configuration or the server."""

    def __str__(self) -> str:
        details = (
            ("at", self.address),
            ("exit code", self.exit_code),
            ("last lines of stderr", "".join(f"\n    {line}" for line in self.last_words) or None),
            ("hint", self.hint),
        )
        lines = "".join(f"\n  {name}: {value}" for name, value in details if value is not None)
        return f"server {self.server!r}, {self.phase}: {self.reason}{lines}"


class ServerError(BridgeError):
    """A remote server or its connection failed. The message is meant for the operator; see `brief` for other readers.

    Attributes:
        failure: Details of the failure.
    """

    def __init__(self, failure: ServerFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure

    @property
    def server(self) -> str:
        """Name of the server."""
        return self.failure.server

    @property
    def brief(self) -> str:
        """One line without command, URL and stderr, for models and remote callers."""
        return f"the server {self.failure.server!r}, {self.failure.phase}: {self.failure.reason}"


class ServerUnavailableError(ServerError):
    """A server cannot be started or reached; the call never ran."""


class ServerAuthError(ServerUnavailableError):
    """Credentials for a server are missing or were rejected."""


class OutcomeUnknownError(ServerError):
    """The connection broke during a call, which may have run completely, partly or not at all."""


class ServerTimeoutError(OutcomeUnknownError):
    """A server did not respond in time. The call was cancelled, but may have run."""


class ServerAnswerError(ServerError):
    """A server's response violates the protocol; the call has probably run."""


class ServerRefusedError(ServerError):
    """A server responded with a JSON-RPC error.

    Attributes:
        code: JSON-RPC error code.
        message: The server's error message.
        data: Additional data of the error.
    """

    def __init__(self, failure: ServerFailure, code: int, message: str, data: Any = None) -> None:
        super().__init__(failure)
        self.code = code
        self.message = message
        self.data = data


class PinMismatchError(ServerError):
    """A server's resource or prompt differs from its pin, and was not requested."""


class ToolCallError(BridgeError):
    """A tool call failed; ``str(error)`` is suitable for the model."""


_MAX_SHOWN_CHARS = 200


class UnknownToolError(ToolCallError):
    """There is no tool with the called name.

    Attributes:
        name: The called name.
        suggestions: The most similar tool names, best first.
        unavailable: Reasons of the servers whose tools are unknown because they cannot be reached.
    """

    def __init__(self, name: str, suggestions: Sequence[str] = (), unavailable: Sequence[str] = ()) -> None:
        hint = f"; did you mean {' or '.join(repr(s) for s in suggestions)}?" if suggestions else ""
        shown = name if len(name) <= _MAX_SHOWN_CHARS else f"{name[:_MAX_SHOWN_CHARS]}…"
        missing = f"; not available: {'; '.join(unavailable)}" if unavailable else ""
        super().__init__(f"there is no tool named {shown!r}{hint}{missing}")
        self.name = name
        self.suggestions = tuple(suggestions)
        self.unavailable = tuple(unavailable)


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """One problem with the arguments of a call."""

    path: str
    """Location: ``city``, ``order.items[2].price``; empty for the arguments as a whole."""
    expected: str
    """Expected value in words."""
    received: str | None = None
    """Received value as JSON, truncated to 200 characters; None if it is missing."""

    def __str__(self) -> str:
        received = f", got {self.received}" if self.received is not None else ""
        return f"{self.path}: {self.expected}{received}" if self.path else f"{self.expected}{received}"


class ArgumentsError(ToolCallError):
    """The arguments of a call do not parse or do not validate; all problems are reported together.

    Attributes:
        tool: Name of the tool.
        problems: All problems, in the order of the parameters.
    """

    def __init__(self, tool: str, problems: Sequence[ArgumentProblem]) -> None:
        super().__init__(f"invalid arguments for {tool!r}: " + "; ".join(map(str, problems)))
        self.tool = tool
        self.problems = tuple(problems)


class ToolError(ToolCallError):
    """Raise this inside a tool to tell the model what went wrong and how to proceed.

    The message reaches local and remote callers unchanged; the text of other exceptions is not sent to remote callers.
    """


class ResourceNotFoundError(ToolCallError):
    """There is no such resource; a function that reads resources may raise it.

    Attributes:
        uri: URI, or name, of the resource; empty if it was not given.
    """

    def __init__(self, uri: str = "") -> None:
        super().__init__(f"there is no resource {uri!r}" if uri else "there is no such resource")
        self.uri = uri


class ResultError(ToolCallError):
    """The return value of a tool, resource or prompt cannot be sent, or does not match the declared type.

    The message may reach callers, so it contains types and no values.
    """

    def __init__(self, tool: str, returned: str, noun: str = "tool") -> None:
        super().__init__(f"the {noun} {tool!r} returned {returned}")
        self.tool = tool


class ToolTimeoutError(ToolCallError):
    """The tool exceeded its time limit."""

    def __init__(self, tool: str, timeout_seconds: float) -> None:
        super().__init__(f"{tool!r} did not finish within {timeout_seconds:g} seconds")
        self.tool = tool
        self.timeout_seconds = timeout_seconds


class GuardrailError(InvocationError, ToolError):
    """A guardrail refused the user's message, the model's answer, or a tool's arguments or result.

    Also a `ToolError`, so that the reason reaches the caller of a service that is a tool.

    Attributes:
        guardrail: Name of the guardrail.
        reason: The guardrail's reason.
    """

    def __init__(self, refused: str, guardrail: str, reason: str) -> None:
        super().__init__(f"the guardrail {guardrail!r} refused {refused}: {reason}")
        self.guardrail = guardrail
        self.reason = reason
