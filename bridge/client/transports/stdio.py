"""Transport of a server that runs as a child process: standard input and output."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import anyio

from bridge.client.transports.link import Cause, Link, TransportFailedError
from bridge.client.transports.process_limits import NO_LIMITS, ProcessLimits
from bridge.client.transports.transport import Transport, secrets_of
from bridge.protocol.peer import PeerLostError
from bridge.redaction import HIDDEN, redact_command, scrub
from bridge.tools.annotated_checks import check_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from bridge.client.config.schema import ServerEntry
    from bridge.client.config.variables import EntryReader
    from bridge.client.transports.link import LinkOptions
    from bridge.client.transports.process import ChildProcess, InheritEnvironment
    from bridge.client.transports.stdio_lines import LineWriter
    from bridge.protocol.peer import PendingRequest

_FLUSH_SECONDS = 0.5


@lru_cache(maxsize=256)
def _guessed_secrets(*command: str) -> tuple[str, ...]:
    """Secrets that a command line seems to have; cached, since each line of a child's output is searched for them."""
    return redact_command(command).secrets


@dataclass(frozen=True, slots=True, repr=False)
class StdioTransport(Transport):
    """A server that runs as a child process and communicates over standard input and output."""

    command: str
    """The program."""
    _: KW_ONLY
    args: tuple[str, ...] = ()
    """The program's arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to the inherited ones."""
    cwd: str | None = None
    """The child's working directory; None for this process's."""
    inherit_env: InheritEnvironment = "minimal"
    """Environment variables that the child inherits."""
    limits: ProcessLimits = NO_LIMITS
    """Limits of the child."""
    shown: str | None = field(default=None, compare=False)
    """The redacted command line, if it is known better than by heuristics; see `redacted`."""
    expanded: tuple[str, ...] = field(default=(), compare=False)
    """Texts from variables or the user, which may be secret; see `scrub`."""

    is_process: ClassVar[bool] = True
    opening_phase: ClassVar[str] = "starting"
    address_key: ClassVar[str] = "command"
    entry_types: ClassVar[frozenset[str]] = frozenset({"stdio"})
    entry_keys: ClassVar[frozenset[str]] = frozenset(
        {
            *("args", "env", "envFile", "cwd", "inheritEnv", "start", "idleSeconds"),
            *("maxMemoryMib", "maxCpus", "maxCpuSeconds", "processPer"),
        }
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_entry(cls, entry: ServerEntry, reader: EntryReader) -> Self:
        """Create the transport of an entry with a ``command``."""
        command = reader.expand(entry.command or "", "command")
        if not command.value.strip() and not command.is_missing:
            reader.problem(f"is empty: give the program to start, or a {reader.spelled('url')!r}", "command")
        args = [reader.expand(arg, "args", f"[{index}]") for index, arg in enumerate(entry.args or ())]
        cwd = None if entry.cwd is None else reader.path(entry.cwd, "cwd").value
        if _is_in_workspace_only(command.value, cwd, reader.variables.workspace_folder):
            message = "is in the configuration's folder, not in the working directory: write ${workspaceFolder}/…"
            reader.warning(message, "command")
        inherited = entry.inherit_env or "minimal"
        return cls(
            command.value,
            args=tuple(arg.value for arg in args),
            env=_environment(entry, reader),
            cwd=cwd,
            inherit_env=tuple(inherited) if isinstance(inherited, list) else inherited,
            limits=ProcessLimits(
                memory_mib=entry.max_memory_mib, cpus=entry.max_cpus, cpu_seconds=entry.max_cpu_seconds
            ),
            shown=redact_command([command.shown, *(arg.shown for arg in args)]).shown,
            expanded=secrets_of(command, *args),
        )

    @property
    def kind(self) -> str:
        """Kind of the link."""
        return StdioLink.kind

    @property
    def missing_program(self) -> str | None:
        """The program, if the child cannot start it: it is not at its path, or no program in the child's ``PATH``."""
        from bridge.client.transports.process import child_environment  # noqa: PLC0415 - only when a session is opened

        path = child_environment(self.inherit_env, self.env).get("PATH")
        is_name = Path(self.command).name == self.command
        program = self.command if is_name else str(Path(self.cwd or "") / self.command)
        return self.command if shutil.which(program, path=path) is None else None

    def redacted(self) -> str:
        """The command line without secrets."""
        return self.shown if self.shown is not None else redact_command((self.command, *self.args)).shown

    def scrub(self, text: str) -> str:
        """Remove this transport's secrets from a text, such as the child's standard error."""
        return scrub(text, (*self.env.values(), *self.expanded, *_guessed_secrets(self.command, *self.args)))

    def links(self, options: LinkOptions, last_kind: str | None) -> Sequence[Link]:  # noqa: ARG002
        """Create the link."""
        return (StdioLink(self, options),)

    def __repr__(self) -> str:
        return (
            f"StdioTransport({self.redacted()!r}, env={dict.fromkeys(self.env, HIDDEN)!r}, "
            f"cwd={self.cwd!r}, inherit_env={self.inherit_env!r})"
        )


class StdioLink(Link):
    """Pipes of a child process."""

    kind = "stdio"

    def __init__(self, transport: StdioTransport, options: LinkOptions) -> None:
        super().__init__()
        self._transport = transport
        self._options = options
        self._child: ChildProcess | None = None
        self._writer: LineWriter | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start the child process; it has ended with all its descendants when the block has.

        Raises:
            TransportFailedError: It cannot be started.
        """
        from bridge.client.transports.process import child_environment, child_process  # noqa: PLC0415 - only when a session is opened
        from bridge.client.transports.stdio_lines import LineReader, LineWriter  # noqa: PLC0415 - likewise

        transport, events = self._transport, self._options.events
        process = child_process(
            [transport.command, *transport.args],
            self._options.server,
            environment=child_environment(transport.inherit_env, transport.env),
            cwd=transport.cwd,
            scrub=transport.scrub,
            limits=transport.limits,
        )
        async with AsyncExitStack() as stack:
            try:
                child = await stack.enter_async_context(process)
            except OSError as error:
                raise TransportFailedError(_cause_of_start(error, transport)) from error
            self._child, self._writer = child, LineWriter(child, events)
            async with anyio.create_task_group() as tasks:
                has_flushed = anyio.Event()

                async def write(writer: LineWriter = self._writer) -> None:
                    await writer.run()
                    has_flushed.set()

                tasks.start_soon(write)
                tasks.start_soon(LineReader(child, events).run)
                try:
                    yield
                finally:
                    self._writer.finish()
                    with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
                        await has_flushed.wait()
                    tasks.cancel_scope.cancel()

    async def send(self, request: PendingRequest) -> None:
        """Write a request."""
        assert self._writer is not None
        try:
            await self._writer.write(request.text, request)
        except PeerLostError as error:
            request.fail(error)

    async def post(self, text: bytes) -> None:
        """Write a message that has no response."""
        assert self._writer is not None
        with suppress(PeerLostError):  # the reader ends, too
            await self._writer.write(text)

    @property
    def pid(self) -> int | None:
        """Process ID of the child."""
        return self._child.pid if self._child is not None else None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the child; None if it runs."""
        return self._child.exit_code if self._child is not None else None

    @property
    def last_words(self) -> tuple[str, ...]:
        """Last lines of the child's standard error, without secrets."""
        return self._child.last_words if self._child is not None else ()

    async def settle(self, seconds: float) -> None:
        """Wait until a child that closed its output has ended, for a maximum number of seconds."""
        if self._child is not None:
            await self._child.settle(seconds)

    def explain_start(self, error: BaseException) -> Cause | None:
        """Explain the end of the child before the handshake."""
        if not isinstance(error, PeerLostError):
            return None
        if self.exit_code == 0:
            return Cause(
                "it ended before the handshake", "it runs no server: serve a file of tools by bridge serve FILE"
            )
        limits = self._transport.limits
        limited = f", and raise one of its limits ({limits}) if it has reached that" if limits else ""
        return Cause("it ended before the handshake", f"run the command by hand to see its output{limited}")

    def explain_loss(self) -> Cause:
        """Explain the end of the child."""
        ended = "ended" if self.exit_code is not None else "closed its output"
        limits = self._transport.limits
        hint = f"if it has reached one of its limits ({limits}), raise that" if limits and self.exit_code else None
        return Cause(f"the server's process has {ended}", hint)


def _cause_of_start(error: OSError, transport: StdioTransport) -> Cause:
    if transport.cwd is not None and error.filename == transport.cwd:
        return Cause(f"cannot change to its folder {transport.cwd!r}: {error.strerror}", is_permanent=True)
    if isinstance(error, FileNotFoundError):
        hint = "install it, or give its full path: it is searched for in the PATH of the server's environment"
        program, *words = transport.command.split() or [""]
        if words and shutil.which(program) is not None:
            hint = "split it: 'command' is only the program, 'args' is the list of its arguments"
        elif Path(transport.command).name != transport.command:
            hint = "there is no such file: correct its path, or install it"
        return Cause(f"command not found: {transport.command!r}", hint, is_permanent=True)
    if isinstance(error, PermissionError):
        return Cause(f"{transport.command!r} is not executable", "make it executable", is_permanent=True)
    return Cause(error.strerror or type(error).__name__)


def _is_in_workspace_only(command: str, cwd: str | None, folder: Path) -> bool:
    """True if a relative path of a program leads nowhere, but would from the configuration's folder."""
    path = Path(command)
    if path.name == command or path.is_absolute() or (Path.cwd() / (cwd or "") / path).exists():
        return False
    return (folder / path).is_file()


def _environment(entry: ServerEntry, reader: EntryReader) -> dict[str, str]:
    found: dict[str, str] | None = None
    if entry.env_file is not None:
        found = reader.file(entry.env_file, "envFile", read=read_environment_file, kind="a UTF-8 text file")
    environment = found or {}
    for name, text in (entry.env or {}).items():
        if not name or "=" in name or "\0" in name:
            reader.problem("is not a valid variable name", "env", f".{name}")
        elif text is None:
            environment.pop(name, None)
            reader.warning("null removes the variable", "env", f".{name}")
        else:
            environment[name] = reader.expand(text, "env", f".{name}").value
    return environment


def read_environment_file(path: str) -> dict[str, str]:
    """Read the variables of an environment file (python-dotenv syntax).

    Values are literal: ``${VAR}`` is not expanded. Names without ``=`` are ignored.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not UTF-8 text, or the path is invalid.
    """
    from dotenv import dotenv_values  # noqa: PLC0415 - only for configurations with such a file

    text = Path(path).read_text(encoding="utf-8-sig")
    if "\0" in text:
        raise ValueError("a variable cannot contain a NUL character")
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}
