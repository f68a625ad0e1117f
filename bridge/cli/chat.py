"""``bridge chat``: a terminal conversation with a chat model that uses tools."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import click
from pydantic_core import to_json

from bridge.cli.completion import complete_targets
from bridge.cli.interaction.lines import InputInterruptedError, LineInput, line_input
from bridge.cli.mentions import message_of
from bridge.cli.options import group_values, header_option, option, prefix_option, with_headers
from bridge.cli.reporting import FAILED, configure_logging, error_line, log_level_option
from bridge.cli.targets.target import TargetCommand, given_targets, split_targets
from bridge.errors import BridgeError, DefinitionError, MemoryStoreError
from bridge.hosting.process import INTERRUPTED, exit_process, on_interrupt, print_message, run_interruptible
from bridge.redis import is_redis_url
from bridge.service.approval import ApprovalPolicy, Decision
from bridge.service.chat_model import PartialResponse
from bridge.service.events import BeforeToolExecution, ToolExecuted
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.token_stream import TokenStream  # noqa: TC001 - the interface's annotations are read
from bridge.telemetry.writer import write_all
from bridge.text import escape_controls, escaped_json, truncate, with_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.cli.targets.target import Target
    from bridge.client.config.servers import Prefixing
    from bridge.server.features import Features
    from bridge.service.chat_model import StreamingChatModel
    from bridge.service.events import ServiceEvent
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest

_SHOWN_CHARS = 300
_PROMPT = "> "


class _Conversation(Protocol):
    def answer(self, message: Any) -> TokenStream:
        """Answer the user's message, or the messages of a prompt."""
        ...


@click.command(cls=TargetCommand, short_help="Talk to a chat model that uses the tools of TARGETs.")
@click.argument("targets", nargs=-1, metavar="[TARGET...]", shell_complete=complete_targets)
@option("--model", required=True, metavar="PROVIDER:NAME", help="openai:NAME, anthropic:NAME or bedrock:NAME.")
@option("--base-url", help="Base URL of another server with the provider's API.")
@click.option("--system", help="System message for the model.")
@option(
    "--memory",
    type=click.Path(dir_okay=False),
    help="Store the conversation in a SQLite file, or in a Redis database, such as redis://localhost:6379/1.",
)
@click.option(
    "--approve",
    type=click.Choice(["ask", "auto", "deny"]),
    default="ask",
    show_default=True,
    help="Handling of calls of tools that are not annotated as read-only: ask, allow or deny. Annotations of a server "
    "count only if its configuration marks it as trusted.",
)
@click.option(
    "--hide-errors",
    is_flag=True,
    help="Do not send the texts of exceptions, except ToolError, to the model; they are logged instead.",
)
@header_option
@prefix_option
@click.option("--once", metavar="QUESTION", help="Ask one question, write the answer to standard output, and exit.")
@log_level_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    model: str,
    base_url: str | None,
    headers: tuple[str, ...],
    log_level: str,
    **settings: Any,
) -> int:
    """Talk to a chat model that uses the tools of any number of TARGETs.

    The answer is streamed to standard output; each tool call, its result and its duration are shown on standard error.
    Ctrl-C stops an answer; the end of the input (Ctrl-D) ends the conversation.
    """
    configure_logging(log_level)
    chat_model = _model(ctx, model, base_url)
    meant = with_headers(ctx, given_targets(ctx, targets), headers)
    # Output of tools must not mix with the answer.
    output = os.dup(1)
    os.dup2(2, 1)
    conversation = _Terminal(output)
    return exit_process(run_interruptible(_converse, meant, chat_model, group_values(_Options, settings), conversation))


def _model(ctx: click.Context, text: str, base_url: str | None) -> StreamingChatModel:
    from bridge.models.provider import chat_model_named  # noqa: PLC0415 - only needed if a conversation starts

    try:
        return chat_model_named(text, base_url=base_url)
    except DefinitionError as error:
        raise click.UsageError(f"--model: {error}", ctx) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Options of a conversation."""

    system: str | None
    memory: str | None
    approve: str
    hide_errors: bool
    prefix: Prefixing | None
    once: str | None


class _Terminal:
    """Terminal output: the answer, and notes on standard error."""

    def __init__(self, output: int) -> None:
        self.stop: Callable[[], object] = lambda: None
        self._output = output
        self._is_watched = os.isatty(output)
        self._is_mid_line = False

    def write(self, text: str) -> None:
        """Write a piece of the answer; control characters are escaped on a terminal."""
        write_all(self._output, (escape_controls(text) if self._is_watched else text).encode("utf-8", "replace"))
        self._is_mid_line = bool(text) and not text.endswith("\n")

    def end_line(self) -> None:
        """End an incomplete line."""
        if self._is_mid_line:
            self.write("\n")

    def note(self, text: str) -> None:
        """Write a note to standard error."""
        self.end_line()
        print_message(text)

    def show(self, event: ServiceEvent) -> None:
        """Display an event."""
        match event:
            case PartialResponse():
                self.write(event.text)
            case BeforeToolExecution():
                self.note(f"-> {_called(event.request)}")
            case ToolExecuted():
                self.note(f"<- {_outcome(event.execution)}")
            case _:
                pass


async def _converse(
    targets: list[Target],
    model: StreamingChatModel,
    options: _Options,
    terminal: _Terminal,
) -> int:
    from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - after checks that need no imports
    from bridge.cli.targets.servers import servers_of  # noqa: PLC0415 - as above
    from bridge.gateway import Gateway, merged_servers  # noqa: PLC0415 - as above
    from bridge.service.ai_service import ai_service  # noqa: PLC0415 - as above

    system, once = options.system, options.once
    kept = await _memory(options.memory)
    local, remote = split_targets(targets)
    servers = merged_servers((target.name, servers_of(target)) for target in remote)
    async with Gateway(servers, local=load_features(local) if local else None, prefix=options.prefix) as gateway:
        person = line_input()
        service = ai_service(
            _Conversation,
            streaming_chat_model=model,
            tools=gateway.tools,
            memory=kept,
            reveal_errors=not options.hide_errors,
            system_message=(lambda _: system) if system is not None else None,
            approval=_approval(options.approve, person if person.is_there and once is None else None, terminal),
        )
        if once is not None:
            return await _answer(service, once, gateway.features, terminal)
        print_message(f"{with_count(len(gateway.tools), 'tool')}: {', '.join(tool.name for tool in gateway.tools)}")
        if gateway.prompts:
            print_message(f"prompts: {', '.join(f'/{prompt.name}' for prompt in gateway.prompts)}")
        return await _talk(service, person, gateway.features, terminal)


async def _memory(text: str | None) -> ChatMemory:
    try:
        memory = ChatMemory(text)
        if text is not None and not is_redis_url(text):
            await memory.messages()  # opens the file, to detect errors
    except MemoryStoreError as error:
        message = f"--memory: {error}; name a SQLite file, or a new file in an existing folder"
        raise click.UsageError(message, click.get_current_context(silent=True)) from error
    except ValueError as error:
        raise click.UsageError(f"--memory: {error}", click.get_current_context(silent=True)) from error
    return memory


async def _talk(service: _Conversation, person: LineInput, features: Features, terminal: _Terminal) -> int:
    """Answer questions until the end of the input; returns the exit code of the last answer."""
    code = 0
    with closing(person):
        while True:
            try:
                question = await person.line(_PROMPT)
            except InputInterruptedError:
                return INTERRUPTED
            if question is None:
                break
            if not question.strip():
                continue
            answered = None
            with anyio.CancelScope() as scope, on_interrupt(scope.cancel):
                terminal.stop = scope.cancel
                answered = await _answer(service, question, features, terminal)
            if answered is None:
                terminal.note("bridge chat: interrupted; the question and the answer are not stored")
            code = INTERRUPTED if answered is None else answered
    return code


async def _answer(service: _Conversation, question: str, features: Features, terminal: _Terminal) -> int:
    """Stream one answer; returns its exit code."""
    try:
        async for event in service.answer(await message_of(question, features)):
            terminal.show(event)
    except BridgeError as error:
        terminal.note(f"bridge chat: {error_line(error)}")
        return FAILED
    terminal.end_line()
    return 0


def _approval(approve: str, person: LineInput | None, terminal: _Terminal) -> ApprovalPolicy | None:
    """Approval policy for calls that are not known to be read-only; None if every call may run."""
    if approve == "auto":
        return None

    async def ask(request: ToolExecutionRequest, tool: Tool, context: InvocationContext) -> Decision:  # noqa: ARG001 - an Approver's
        if approve == "deny":
            return Decision.no("the user allows no tool that may change something")
        if person is None:
            return Decision.no("there is no terminal to ask for approval; --approve auto allows every tool")
        terminal.end_line()
        try:
            allowed = await person.confirms(f"?? {request.name} {_written(request)}")
        except InputInterruptedError:
            terminal.stop()
            await anyio.lowlevel.checkpoint()
            raise
        return Decision.yes() if allowed else Decision.no("the user said no")

    return ApprovalPolicy(approve=ask)


def _called(request: ToolExecutionRequest) -> str:
    return f"{request.name} {_shortened(_written(request))}"


def _written(request: ToolExecutionRequest) -> str:
    """All arguments on one line, escaped."""
    given = request.arguments
    return given if isinstance(given, str) else escaped_json(to_json(given, fallback=repr).decode())


def _outcome(execution: ToolExecution) -> str:
    failed = "failed: " if execution.result.is_error else ""
    return f"{failed}{_shortened(execution.result.model_text)} ({execution.duration_seconds * 1000:.0f} ms)"


def _shortened(text: str) -> str:
    return truncate(" ".join(text.split()), _SHOWN_CHARS)
