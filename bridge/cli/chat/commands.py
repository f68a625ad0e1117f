"""Commands of a conversation, such as ``/help``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.service.approval import unless_read_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.server.features import Features

COMMANDS = {
    "help": "show commands, prompts and keys",
    "tools": "list the tools",
    "exit": "leave the conversation",
}
"""Commands by name, without the slash, and what they do. They take precedence over prompts of these names."""
_KEYS = (
    "@URI in a question sends the content of a resource.",
    "Ctrl-C ends an answer or clears the line, twice it leaves; Ctrl-D leaves; Alt-Enter begins a new line.",
)


def run_command(question: str, features: Features, show: Callable[[str], object]) -> bool | None:
    """Run a command; returns None if the question is none, and False to leave the conversation.

    Args:
        question: The question as it was written.
        features: The tools and prompts.
        show: Writes a text for the user.
    """
    match question.strip():
        case "/help":
            show("\n".join(_help(features)))
        case "/tools":
            show("\n".join(_tools(features)) or "no tools")
        case "/exit":
            return False
        case _:
            return None
    return True


def _help(features: Features) -> Iterator[str]:
    for name, description in COMMANDS.items():
        yield f"/{name}  {description}"
    for prompt in features.prompts or ():
        arguments = "".join(f" {argument.name}=…" for argument in prompt.arguments)
        yield f"/{prompt.name}{arguments}" + _first_line(prompt.description)
    yield from _KEYS


def _tools(features: Features) -> Iterator[str]:
    for tool in features.tools:
        asks = "" if not unless_read_only(tool) else "  (asks)"
        yield f"{tool.name}{_first_line(tool.specification.description)}{asks}"


def _first_line(description: str | None) -> str:
    lines = (description or "").strip().splitlines()
    return f"  {lines[0]}" if lines else ""
