"""A conversation: questions of the user, and answers of a chat model that uses the tools of targets."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import click

from bridge.cli.chat.approvals import Approvals, approval_policy
from bridge.cli.chat.commands import run_command
from bridge.cli.chat.mentions import message_of
from bridge.cli.interaction.channel import CommandChannel
from bridge.cli.interaction.lines import InputInterruptedError, PlainInput, can_edit
from bridge.cli.interaction.questions import QuestionAnswerer
from bridge.cli.reporting import FAILED, error_line
from bridge.cli.targets.features import in_use
from bridge.cli.targets.target import split_targets
from bridge.cli.terminal import is_installed
from bridge.errors import BridgeError, MemoryStoreError
from bridge.hosting.process import INTERRUPTED, on_interrupt, print_message
from bridge.private_files import state_folder
from bridge.redis import is_redis_url
from bridge.service.events import InvocationListener
from bridge.service.memory.chat_memory import ChatMemory
from bridge.service.token_stream import TokenStream  # noqa: TC001 - the interface's annotations are read
from bridge.text import with_count
from bridge.tools.execution import ExecutionPolicy

if TYPE_CHECKING:
    from bridge.cli.chat.display import Display
    from bridge.cli.interaction.lines import LineInput
    from bridge.cli.targets.target import Target
    from bridge.client.config.servers import Prefixing
    from bridge.models.provider import ProviderChatModel
    from bridge.server.features import Features
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest

_PROMPT = "> "
_HISTORY = "chat_history"
_EXTRA_HINT = "line editing, history, completion and Markdown need the extra cli: pip install 'mcp-toolbridge[cli]'"


class _Service(Protocol):
    def answer(self, message: Any) -> TokenStream:
        """Answer the user's message, or the messages of a prompt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """Options of a conversation."""

    system: str | None
    memory: str | None
    approve: str
    hide_errors: bool
    no_history: bool
    prefix: Prefixing | None
    once: str | None


class _ToolQuestions(InvocationListener):
    """Connects each tool to the user, whom it may ask, and to whom it may report progress."""

    def __init__(self, answerer: QuestionAnswerer, channel: CommandChannel) -> None:
        self._answerer = answerer
        self._channel = channel

    def before_tool(self, request: ToolExecutionRequest, context: InvocationContext) -> None:
        """Connect a tool that is about to run."""
        self._answerer.asker = f"the tool {request.name!r}"
        context.connect(self._channel)


class _Conversation:
    """Questions and answers."""

    def __init__(
        self, service: _Service, features: Features, lines: LineInput, display: Display, approvals: Approvals
    ) -> None:
        self._service = service
        self._features = features
        self._lines = lines
        self._display = display
        self._approvals = approvals

    async def talk(self) -> int:
        """Answer questions until the end of the input; returns the exit code of the last answer."""
        code, was_interrupted = 0, False
        while True:
            try:
                question = await self._lines.question(_PROMPT)
            except InputInterruptedError:
                if was_interrupted:
                    return INTERRUPTED
                was_interrupted = True
                self._display.note("press Ctrl-C again, or Ctrl-D, to leave")
                continue
            was_interrupted = False
            if question is None:
                return code
            if not question.strip():
                continue
            match run_command(question, self._features, self._display.note):
                case None:
                    code = await self._interruptible_answer(question)
                case False:
                    return code

    async def _interruptible_answer(self, question: str) -> int:
        with anyio.CancelScope() as scope, on_interrupt(scope.cancel):
            self._approvals.stop = scope.cancel
            return await self.answer(question)
        self._display.end()
        self._display.note("bridge chat: interrupted; the question and the answer are not stored")
        return INTERRUPTED

    async def answer(self, question: str) -> int:
        """Stream one answer; returns its exit code."""
        self._display.begin()
        try:
            async for event in self._service.answer(await message_of(question, self._features)):
                self._display.show(event)
        except BridgeError as error:
            self._display.end()
            self._display.note(f"bridge chat: {error_line(error)}", "red")
            return FAILED
        self._display.end()
        self._display.show_cost()
        return 0


async def converse(
    targets: list[Target], model: ProviderChatModel, options: ConversationOptions, display: Display
) -> int:
    """Connect to the targets, and answer questions; returns the exit code.

    Raises:
        BridgeError: A target is unusable.
    """
    from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - after checks that need no imports
    from bridge.cli.targets.servers import servers_of  # noqa: PLC0415 - as above
    from bridge.gateway import Gateway, merged_servers  # noqa: PLC0415 - as above
    from bridge.server.features import Features  # noqa: PLC0415 - as above
    from bridge.service.ai_service import ai_service  # noqa: PLC0415 - as above

    system, once = options.system, options.once
    kept = await _memory(options.memory)
    local, remote = split_targets(targets)
    servers = merged_servers((target.name, servers_of(target)) for target in remote)
    own = load_features(local) if local else Features()
    async with in_use(own), Gateway(servers, local=own, prefix=options.prefix) as gateway:
        features = gateway.features
        with (
            closing(_lines(features, options)) as lines,
            CommandChannel(answerer := QuestionAnswerer(lines, model=model, confirms_sampling=True)) as channel,
        ):
            approvals = Approvals(lines, display)
            display.before_output = channel.hide
            service = ai_service(
                _Service,
                streaming_chat_model=model,
                tools=gateway.tools,
                memory=kept,
                policy=ExecutionPolicy(reveal_errors=not options.hide_errors),
                system_message=(lambda _: system) if system is not None else None,
                approval=approval_policy(options.approve, approvals if lines.is_there and once is None else None),
                listeners=[_ToolQuestions(answerer, channel)],
            )
            conversation = _Conversation(service, features, lines, display, approvals)
            if once is not None:
                return await conversation.answer(once)
            print_message(f"{with_count(len(gateway.tools), 'tool')}: {', '.join(tool.name for tool in gateway.tools)}")
            if gateway.prompts:
                print_message(f"prompts: {', '.join(f'/{prompt.name}' for prompt in gateway.prompts)}")
            return await conversation.talk()


def _lines(features: Features, options: ConversationOptions) -> LineInput:
    """Input of the user: edited at a terminal with the extra, else plain."""
    plain = PlainInput()
    if options.once is not None or not plain.is_there:
        return plain
    if not can_edit():
        if not is_installed("prompt_toolkit"):
            print_message(_EXTRA_HINT)
        return plain
    from bridge.cli.chat.editor import QuestionEditor  # noqa: PLC0415 - an extra

    try:
        return QuestionEditor(features, None if options.no_history else state_folder() / _HISTORY)
    except OSError as error:
        print_message(f"bridge chat: no history is kept: {error}", "warning")
        return QuestionEditor(features, None)


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
