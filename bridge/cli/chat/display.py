"""Output of a conversation: the answer, and notes about tools and costs on standard error."""

from __future__ import annotations

import os
import sys
from time import perf_counter
from typing import TYPE_CHECKING

import click
from pydantic_core import to_json

from bridge.cli.terminal import console_for, is_rich, wants_colour
from bridge.hosting.process import print_message
from bridge.service.chat_model import CompleteResponse, PartialResponse, TokenUsage
from bridge.service.events import BeforeToolExecution, IntermediateResponse, ToolExecuted
from bridge.service.memory.chat_memory import estimate_tokens
from bridge.service.messages import SystemMessage
from bridge.telemetry.writer import write_all
from bridge.text import clip, escape_controls, escaped_json, with_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.cli.chat.markdown import MarkdownWriter
    from bridge.service.chat_model import ChatResponse
    from bridge.service.events import ServiceEvent
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest

_SHOWN_CHARS = 300


class Display:
    """The answer on standard output, and notes on standard error.

    Args:
        output: Descriptor of standard output.

    Attributes:
        before_output: Called before anything is written, such as to hide a progress bar.
    """

    def __init__(self, output: int) -> None:
        self.before_output: Callable[[], object] = lambda: None
        self._output = output
        self._is_terminal = os.isatty(output)
        self._is_mid_line = False
        self._markdown: MarkdownWriter | None = None
        stream = os.fdopen(os.dup(output), "w", encoding="utf-8", errors="replace")
        if is_rich(stream):
            from bridge.cli.chat.markdown import MarkdownWriter  # noqa: PLC0415 - an extra

            self._markdown = MarkdownWriter(console_for(stream))
        self._cost = _Cost()

    def begin(self) -> None:
        """Begin an answer."""
        self._cost = _Cost()

    def end(self) -> None:
        """End an answer: finish its last line."""
        self.before_output()
        if self._markdown is not None:
            self._markdown.end()
        self._end_line()

    def note(self, text: str, colour: str | None = None) -> None:
        """Write a note to standard error."""
        self.before_output()
        if self._markdown is not None:
            self._markdown.pause()
        self._end_line()
        if colour is not None and wants_colour(sys.stderr):
            click.echo(click.style(escape_controls(text), fg=colour), err=True, color=True)
        else:
            print_message(text)

    def show(self, event: ServiceEvent) -> None:
        """Display an event."""
        match event:
            case PartialResponse():
                self._write(event.text)
            case BeforeToolExecution():
                self.note(f"-> {event.request.name} {_shortened(written_arguments(event.request))}", "cyan")
            case ToolExecuted():
                self._cost.tools += 1
                self.note(f"<- {_outcome(event.execution)}", "red" if event.execution.result.is_error else "green")
            case IntermediateResponse() | CompleteResponse():
                self._cost.add(event.response)
            case _:
                pass

    def show_cost(self) -> None:
        """Write the cost of the answer."""
        self.note(f"== {self._cost}", "bright_black")

    def _write(self, text: str) -> None:
        """Write a piece of the answer; control characters are escaped on a terminal."""
        self.before_output()
        if self._markdown is not None:
            self._markdown.write(text)
            return
        write_all(self._output, (escape_controls(text) if self._is_terminal else text).encode("utf-8", "replace"))
        self._is_mid_line = bool(text) and not text.endswith("\n")

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._write("\n")


class _Cost:
    """Cost of one answer."""

    def __init__(self) -> None:
        self.tools = 0
        self._replies = 0
        self._usage = TokenUsage()
        self._start = perf_counter()

    def add(self, response: ChatResponse) -> None:
        self._replies += 1
        self._usage += response.token_usage

    def __str__(self) -> str:
        counts = {"input": self._usage.input_tokens, "output": self._usage.output_tokens}
        known = " and ".join(f"{count:,} {name}" for name, count in counts.items() if count is not None)
        parts = [
            "1 reply" if self._replies == 1 else f"{self._replies} replies",
            *([with_count(self.tools, "call") + " of tools"] if self.tools else []),
            f"{known} tokens" if known else "tokens not reported",
            f"{(perf_counter() - self._start) * 1000:,.0f} ms",
        ]
        return ", ".join(parts)


def written_arguments(request: ToolExecutionRequest) -> str:
    """All arguments on one line, escaped."""
    given = request.arguments
    return given if isinstance(given, str) else escaped_json(to_json(given, fallback=repr).decode())


def _outcome(execution: ToolExecution) -> str:
    text = execution.result.model_text
    failed = "failed: " if execution.result.is_error else ""
    tokens = with_count(estimate_tokens(SystemMessage(text)), "token")
    return f"{failed}{_shortened(text)} (about {tokens}, {execution.duration_seconds * 1000:.0f} ms)"


def _shortened(text: str) -> str:
    return clip(" ".join(text.split()), _SHOWN_CHARS)
