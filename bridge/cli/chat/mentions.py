"""Prompts and resources in the questions of ``bridge chat``.

/review code=x language=python      the messages of a prompt, rendered with these arguments
Summarize @notes://today            the question, with the content of the resource
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from bridge.cli.chat.commands import COMMANDS
from bridge.cli.targets.features import contents_of, produced, prompt_named
from bridge.errors import ResourceNotFoundError, TargetError
from bridge.text import nearest
from bridge.tools.content import File, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.prompts.prompt import PromptMessage
    from bridge.server.features import Features
    from bridge.tools.content import Content

_PROMPT = re.compile(r"/([\w.-]+)(?:\s+(.*))?", re.DOTALL)
_RESOURCE = re.compile(r"(?<!\S)@(\S+)")
_PUNCTUATION = ".,;:!?)"


async def message_of(question: str, features: Features) -> str | UserMessage | Sequence[PromptMessage]:
    """Return the message, or messages, for a question.

    Args:
        question: The question as it was written.
        features: The prompts and resources.

    Raises:
        TargetError: There is no such prompt or command, or its arguments do not have the form ``name=value``.
        ResourceNotFoundError: There is no resource with a URI that was written with ``@``.
        BridgeError: A prompt or resource failed.
    """
    match = _PROMPT.fullmatch(question.strip())
    if match is not None and (features.prompts or match[2] is None or match[1] in COMMANDS):
        return await _rendered(match[1], match[2] or "", features)
    contents: list[Content] = []
    for match in _RESOURCE.finditer(question):
        contents += await _read(match[1], features)
    return UserMessage.of(question, *contents) if contents else question


async def _rendered(name: str, arguments: str, features: Features) -> Sequence[PromptMessage]:
    is_prompt = features.prompts is not None and features.prompts.find(name) is not None
    if not is_prompt and (near := nearest(name, COMMANDS)):
        raise TargetError(f"there is no prompt {name!r}; did you mean the command /{near[0]}?")
    prompt = prompt_named(features, name)
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise TargetError(f"the arguments of /{name} cannot be read: {error}") from None
    for word in words:
        if "=" not in word:
            raise TargetError(f"{word!r} does not have the form name=value; write /{name} name=value")
    result = await produced(prompt.tool, dict(word.split("=", 1) for word in words), lifespan=features.lifespan)
    messages: Sequence[PromptMessage] = result.value
    return messages


async def _read(text: str, features: Features) -> list[Content]:
    """Return the contents of a resource; none for a text that is no URI, such as a name."""
    if features.resources is None:
        return []
    uri = next(
        (each for each in (text.rstrip(_PUNCTUATION), text) if ":" in each and features.resources.find(each)), None
    )
    if uri is None:
        if "://" in text:
            raise ResourceNotFoundError(text)
        return []
    result = await contents_of(features, uri)
    return [block.inline() if isinstance(block, File) else block for block in result.content]
