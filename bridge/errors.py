"""The one tree of errors that this package raises.

    BridgeError
    ├── DefinitionError          a mistake in a program: found when a tool is defined or registered
    │   └── NameClashError       two tools want one name
    ├── TargetError              a file, module or command line target that holds no tools
    ├── ConfigError              a configuration of servers that cannot be used: all its problems at once
    ├── MissingExtraError        an optional dependency that is not installed
    ├── WireError                what came over a connection, or from a disk, is not what it should be
    ├── ChatModelError           a chat model's provider failed
    ├── MemoryStoreError         what keeps conversations cannot be read or written
    ├── ServerError              a remote server, or the way to it, failed
    │   ├── ServerUnavailableError   it cannot be started, reached or greeted: what was asked of it never ran
    │   │   └── ServerAuthError      it asks for credentials that it was not given, or refuses those that it was
    │   ├── OutcomeUnknownError      the connection broke while it worked: what was asked may have run
    │   │   └── ServerTimeoutError   it did not answer in time
    │   ├── ServerAnswerError        it answered what the protocol does not know
    │   └── ServerRefusedError       it answered with an error of the protocol
    ├── InvocationError          an AI service's invocation came to no answer
    │   ├── ToolLimitError       the model wanted more round trips, or more tools at once, than it may have
    │   ├── ReplyError           the model's reply is not what the method returns
    │   └── InvocationTimeoutError  the invocation ran out of time
    └── ToolCallError            one call did not succeed
        ├── UnknownToolError     no tool has that name
        ├── ArgumentsError       the arguments do not parse or do not validate
        ├── ToolError            raised by a tool's author on purpose: the message is for the model
        ├── ResultError          the tool returned something that cannot be sent
        └── ToolTimeoutError     the tool ran out of time

A mistake in a program is an exception where the program made it. A call that failed becomes a result with
``is_error``, so that the model can correct itself (see `bridge.tools.execution`). A broken protocol is neither:
it is answered in the protocol's own terms at the edge that speaks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class BridgeError(Exception):
    """The root of every error of this package."""


class DefinitionError(BridgeError):
    """A tool that cannot be defined; the message names the object and the remedy."""


class NameClashError(DefinitionError):
    """Two tools of one ToolBox want the same name; the message names both sources."""

    def __init__(self, name: str, first: str, second: str) -> None:
        super().__init__(
            f"two tools are named {name!r}: one from {first}, one from {second}; "
            f"rename one (bridge.renamed) or give one source a prefix (bridge.prefixed)"
        )
        self.name = name


class TargetError(BridgeError):
    """What was named on the command line, or in a configuration, holds no tools; the message says why."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong with a configuration of servers; it quotes no value that may be secret."""

    message: str
    """What is wrong, and what to do."""
    server: str | None = None
    """The name of the server; None where it is not about one."""
    key: str | None = None
    """Where in the server, or in the file: ``args[1]``, ``headers.Authorization``."""
    line: int | None = None
    """The line of a syntax error, from 1."""
    column: int | None = None
    """The column of a syntax error, from 1."""

    def __str__(self) -> str:
        where = (
            self.line is not None and f"line {self.line}, column {self.column}",
            self.server is not None and f"server {self.server!r}",
            self.key is not None and repr(self.key),
        )
        place = ", ".join(part for part in where if part)
        return f"{place}: {self.message}" if place else self.message


class ConfigError(BridgeError):
    """A configuration of servers that cannot be used; all its problems are reported together.

    Attributes:
        source: The file, or what else the configuration was read from.
        problems: Every problem that was found.
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
    """A feature needs a package that is not installed; the message names the extra to install."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(f"{feature} needs the package {package!r}: pip install 'mcp-toolbridge[{extra}]'")
        self.extra = extra


class WireError(BridgeError, ValueError):
    """What came over a connection, or from a disk, is not what the protocol or format says; the message shows it."""


class ChatModelError(BridgeError):
    """A model's provider failed.

    Attributes:
        provider: The provider's name.
        status: The HTTP status; None where there was none.
        request_id: What the provider calls the request; for its support.
        retryable: Trying again may succeed. The provider's SDK has tried already.
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
    """Conversations cannot be read or written: a file is locked, full or no database, or a Redis does not answer.

    The message names the store and the reason; the cause is the error of its library. Nothing is half-written.
    """


class InvocationError(BridgeError):
    """An AI service's invocation came to no answer; the conversation's memory is as it was before."""


class ToolLimitError(InvocationError):
    """The model wanted more round trips through tools, or more tools at once, than the service allows."""


class ReplyError(InvocationError):
    """The model's reply is not what the method returns, and was not when it was asked again.

    Attributes:
        reply: What the model said last.
    """

    def __init__(self, message: str, reply: str) -> None:
        super().__init__(message)
        self.reply = reply


class InvocationTimeoutError(InvocationError, TimeoutError):
    """The invocation ran out of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFailure:
    """What went wrong with a remote server; nothing in it is secret."""

    server: str
    """The server's name."""
    phase: str
    """What was being done: ``starting``, ``connecting``, ``calling 'add'``."""
    reason: str
    """What went wrong, in a few words."""
    address: str | None = None
    """The command line or the URL, redacted."""
    hint: str | None = None
    """What to do about it."""
    last_words: tuple[str, ...] = ()
    """The last lines that the child wrote to its standard error."""
    exit_code: int | None = None
    """How the child ended: an exit code, or a signal's number as a negative one; None while it runs."""
    is_permanent: bool = False
    """Trying again will fail again, until somebody changes something."""

    def __str__(self) -> str:
        details = (
            ("at", self.address),
            ("exit code", self.exit_code),
            ("its last words", "".join(f"\n    {line}" for line in self.last_words) or None),
            ("hint", self.hint),
        )
        lines = "".join(f"\n  {name}: {value}" for name, value in details if value is not None)
        return f"server {self.server!r}, {self.phase}: {self.reason}{lines}"


class ServerError(BridgeError):
    """A remote server, or the way to it, failed. The message is for whoever runs this; see `brief`.

    Attributes:
        failure: What went wrong, in parts.
    """

    def __init__(self, failure: ServerFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure

    @property
    def server(self) -> str:
        """The server's name."""
        return self.failure.server

    @property
    def brief(self) -> str:
        """One line without command, URL and last words: for a model, or a caller elsewhere."""
        return f"the server {self.failure.server!r}, {self.failure.phase}: {self.failure.reason}"


class ServerUnavailableError(ServerError):
    """A server cannot be started, reached or greeted; what was asked of it never ran."""


class ServerAuthError(ServerUnavailableError):
    """A server asks for credentials that it was not given, or refuses those that it was."""


class OutcomeUnknownError(ServerError):
    """The connection broke while the server worked: what was asked may have run, wholly or in part, or not."""


class ServerTimeoutError(OutcomeUnknownError):
    """A server did not answer in time. It was told to stop, and may have run what was asked."""


class ServerAnswerError(ServerError):
    """A server answered what the protocol does not know; what was asked has probably run."""


class ServerRefusedError(ServerError):
    """A server answered with an error of the protocol (JSON-RPC's error object).

    Attributes:
        code: JSON-RPC's code.
        message: The server's words.
        data: What it says beside that.
    """

    def __init__(self, failure: ServerFailure, code: int, message: str, data: Any = None) -> None:
        super().__init__(failure)
        self.code = code
        self.message = message
        self.data = data


class ToolCallError(BridgeError):
    """One call of a tool did not succeed; ``str(error)`` is fit for the model."""


_MAX_SHOWN_CHARS = 200


class UnknownToolError(ToolCallError):
    """No tool has the name that was called.

    Attributes:
        name: The name that was called.
        suggestions: The nearest names that exist, nearest first.
    """

    def __init__(self, name: str, suggestions: Sequence[str] = ()) -> None:
        hint = f"; did you mean {' or '.join(repr(s) for s in suggestions)}?" if suggestions else ""
        shown = name if len(name) <= _MAX_SHOWN_CHARS else f"{name[:_MAX_SHOWN_CHARS]}…"
        super().__init__(f"there is no tool named {shown!r}{hint}")
        self.name = name
        self.suggestions = tuple(suggestions)


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """One thing that is wrong with the arguments of a call."""

    path: str
    """Where: ``city``, ``order.items[2].price``; empty for the arguments as a whole."""
    expected: str
    """What would have been right, in words."""
    received: str | None = None
    """What came, as JSON cut at 200 characters; None where nothing came."""

    def __str__(self) -> str:
        came = f", got {self.received}" if self.received is not None else ""
        return f"{self.path}: {self.expected}{came}" if self.path else f"{self.expected}{came}"


class ArgumentsError(ToolCallError):
    """The arguments of one call do not parse or do not validate; all problems are reported together.

    Attributes:
        tool: The tool's name.
        problems: Every problem that was found, in the order of the parameters.
    """

    def __init__(self, tool: str, problems: Sequence[ArgumentProblem]) -> None:
        super().__init__(f"invalid arguments for {tool!r}: " + "; ".join(map(str, problems)))
        self.tool = tool
        self.problems = tuple(problems)


class ToolError(ToolCallError):
    """Raise this inside a tool to tell the model, in your words, what went wrong and what to do about it.

    The message reaches local and remote callers as it is; any other exception's text stays on this side.
    """


class ResultError(ToolCallError):
    """The tool returned something that cannot be sent, or is not what it declares.

    It is the author's mistake and a caller's disappointment: the message names types and never values.
    """

    def __init__(self, tool: str, returned: str) -> None:
        super().__init__(f"the tool {tool!r} returned {returned}")
        self.tool = tool


class ToolTimeoutError(ToolCallError):
    """The tool ran out of time."""

    def __init__(self, tool: str, timeout_seconds: float) -> None:
        super().__init__(f"{tool!r} did not finish within {timeout_seconds:g} seconds")
        self.tool = tool
        self.timeout_seconds = timeout_seconds
