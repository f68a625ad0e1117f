"""Answers of a user at a terminal to the questions of tools: forms, pages, completions of a model, folders.

Everything that a server says is escaped and indented, so that it cannot imitate the prompts of the command.
"""

from __future__ import annotations

import sys
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import anyio

from bridge.cli.interaction.forms import FieldError, form_fields
from bridge.cli.interaction.lines import InputInterruptedError, line_input
from bridge.errors import ToolError
from bridge.hosting.process import print_message
from bridge.text import clip, with_count
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, Sampling, UrlElicitation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bridge.cli.interaction.lines import LineInput
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.service.chat_model import ChatModel
    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Answer, Question, SamplingAnswer

_MAX_MESSAGE_CHARS = 8_000
_KEYS = "Enter takes the [default] or skips an optional field; Ctrl-D declines; Ctrl-C cancels"
_DECLINED, _CANCELLED = ElicitationAnswer("decline"), ElicitationAnswer("cancel")


class QuestionAnswerer:
    """Answers the questions of one command's tools, one at a time.

    Args:
        lines: Input of the user; None for the best that there is.
        model: Answers sampling requests; None refuses them.
        roots: Folders of the user; None refuses requests for them.
        confirms_sampling: Ask the user before each use of the model.

    Attributes:
        asker: Name of what asks, for people: ``the tool 'x'``.
        before_asking: Called before the terminal is used for a question, such as to hide a progress bar.
        refusals: Reasons of the refused questions, which were printed.
    """

    def __init__(
        self,
        lines: LineInput | None = None,
        *,
        model: ChatModel | None = None,
        roots: Sequence[Path] | None = None,
        confirms_sampling: bool = False,
    ) -> None:
        self.asker = "a server"
        self.before_asking: Callable[[], object] = lambda: None
        self.refusals: list[str] = []
        self._lines = lines
        self._model = model
        self._roots = roots
        self._confirms_sampling = confirms_sampling
        self._lock = anyio.Lock()

    def handlers(self) -> ClientHandlers:
        """Handlers of servers' requests. Roots are declared only if there are any."""
        from bridge.client.connection.handlers import ClientHandlers  # noqa: PLC0415 - only with servers

        features: Sequence[Literal["tools"]] = () if self._model is None else ("tools",)
        return ClientHandlers(
            elicitation=self._elicited,
            sampling=self._sampled,
            sampling_features=features,
            roots=None if self._roots is None else self._listed,
        )

    async def ask(self, questions: Mapping[str, Question], context: InvocationContext) -> Mapping[str, Answer]:
        """Answer questions one after another; returns the answers under the same keys.

        Raises:
            ToolError: A question is refused; the message says why.
        """
        return {key: await self.answer(question, context) for key, question in questions.items()}

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        """Answer one question; raises as `ask` does."""
        match question:
            case Elicitation() | UrlElicitation():
                return await self._elicited(question, context)
            case Sampling():
                return await self._sampled(question, context)
            case _:
                return tuple(await self._listed(context))

    async def _elicited(self, question: Elicitation | UrlElicitation, _context: InvocationContext) -> ElicitationAnswer:
        async with self._lock:
            lines = self._terminal(_asked(question))
            try:
                if isinstance(question, UrlElicitation):
                    return await self._visited(lines, question)
                return await self._filled(lines, question)
            except InputInterruptedError:
                print_message("cancelled")
                return _CANCELLED

    def _terminal(self, what: str) -> LineInput:
        """Prepare the terminal for a question.

        Raises:
            ToolError: There is none.
        """
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise self._refusal(f"{self.asker} asks the user {what}, but this is not a terminal, so nobody can answer")
        self.before_asking()
        self._lines = self._lines or line_input()
        return self._lines

    async def _filled(self, lines: LineInput, question: Elicitation) -> ElicitationAnswer:
        fields = form_fields(question.schema)
        print_message(f"{self.asker} asks:\n{_quoted(question.message)}")
        if not fields:
            is_accepted = await lines.confirms("agree?")
            return ElicitationAnswer("accept", {}) if is_accepted else _DECLINED
        print_message(f"({_KEYS})")
        content: dict[str, Any] = {}
        for field in fields:
            print_message(indent(field.described(), "  "))
            while True:
                default = f" [{clip(field.default_text, 200)}]" if field.has_default else ""
                text = await lines.line(f"  {' '.join(clip(field.name, 60).split())}{default}: ")
                if text is None:
                    print_message("declined")
                    return _DECLINED
                try:
                    if text.strip() or (field.is_required and not field.has_default):
                        content[field.name] = field.read(text)
                    elif field.has_default:
                        content[field.name] = field.schema["default"]
                except FieldError as error:
                    print_message(f"  {error}")
                    continue
                break
        return ElicitationAnswer("accept", content)

    async def _visited(self, lines: LineInput, question: UrlElicitation) -> ElicitationAnswer:
        print_message(f"{self.asker} asks you to visit a page:\n{_quoted(question.message)}")
        print_message(f"  {' '.join(question.url.split())}\n  host: {_host(question.url)}")
        is_accepted = await lines.confirms("open it yourself if you trust this host; do you agree to visit it?")
        if is_accepted:
            print_message("waiting until you have finished there…")
        return ElicitationAnswer("accept") if is_accepted else _DECLINED

    async def _sampled(self, question: Sampling, context: InvocationContext) -> SamplingAnswer:
        if self._model is None:
            raise self._refusal(
                f"{self.asker} asks for a completion of a chat model; give one with --model PROVIDER:NAME"
            )
        from bridge.models.sampling import sampling_with  # noqa: PLC0415 - only with a model

        size = f"{with_count(len(question.messages), 'message')}, at most {question.max_tokens} tokens"
        if self._confirms_sampling:
            async with self._lock:
                await self._permitted(f"{self.asker} asks to use the model: {size}; allow it?")
        else:
            self.before_asking()
            print_message(f"{self.asker} uses the model: {size}")
        return await sampling_with(self._model)(question, context)

    async def _permitted(self, question: str) -> None:
        try:
            if await self._terminal("permission to use the model").confirms(question):
                return
        except InputInterruptedError:
            pass
        raise ToolError("the user did not allow the use of the model")

    async def _listed(self, _context: InvocationContext) -> Sequence[Root]:
        if self._roots is None:
            raise self._refusal(f"{self.asker} asks for your folders; give them with --root FOLDER")
        return [Root(path.resolve().as_uri(), path.resolve().name or str(path)) for path in self._roots]

    def _refusal(self, reason: str) -> ToolError:
        """Refuse a question; the server gets the reason, and may not pass it on."""
        if reason not in self.refusals:
            self.refusals.append(reason)
            print_message(f"bridge: {reason}", "warning")
        return ToolError(reason)


def _asked(question: Elicitation | UrlElicitation) -> str:
    """Return what a user is asked, for whoever has no terminal and opens a link elsewhere."""
    if isinstance(question, UrlElicitation):
        return f"to visit {' '.join(question.url.split())} ({clip(question.message, _MAX_MESSAGE_CHARS)})"
    return "a question"


def _quoted(text: str) -> str:
    return indent(clip(text, _MAX_MESSAGE_CHARS), "  | ", lambda _: True)


def _host(url: str) -> str:
    """Host of a URL as DNS has it, so that letters of other scripts cannot imitate it.

    Browsers end the host at a backslash, and drop control characters; `urlsplit` differs.
    """
    if "\\" in url or any(character <= " " for character in url):
        return "not readable; do not visit it"
    try:
        host = urlsplit(url).hostname or "none"
        return host if host.isascii() else f"{host.encode('idna').decode()} (not ASCII: {host})"
    except ValueError:
        return "not readable; do not visit it"
