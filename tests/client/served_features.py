"""Resources and prompts for the tests of providers, served by a process of its own."""

from __future__ import annotations

from typing import Literal

from bridge import File, InvocationContext, PromptMessage, ResourceBox, ResourceLink, ToolBox, prompt, resource, tool
from bridge.prompts import PromptBox
from bridge.server import Features

NOTES = {"milk": "2 litres"}


@resource("notes://all", title="All notes", annotations={"priority": 0.5})
def titles() -> list[str]:
    """The titles of all notes."""
    return list(NOTES)


@resource("notes://{title}{?style}", mime_type="text/markdown", completions={"title": ["milk", "money"]})
def note(title: str, style: Literal["plain", "loud"] = "plain") -> str | None:
    """A note."""
    text = NOTES.get(title)
    return text.upper() if text and style == "loud" else text


@resource("bytes://all", mime_type="application/octet-stream")
def all_bytes() -> bytes:
    """Every byte."""
    return bytes(range(256))


@resource("question://dish")
async def dish(context: InvocationContext) -> str:
    """A dish, of which the client is asked."""
    form = {"type": "object", "properties": {"dish": {"type": "string"}}}
    answer = await context.elicit("What would you like?", form, key="dish")
    return str(answer.content and answer.content["dish"])


@prompt(title="Review", completions={"language": ["python", "perl"]})
def review(code: str, language: str = "python") -> list[PromptMessage]:
    """Review code."""
    return [
        PromptMessage(f"Review this {language}: {code}"),
        PromptMessage(File("notes://all", "milk", "text/plain"), "assistant"),
    ]


@prompt
async def menu(context: InvocationContext) -> str:
    """A menu, of which the client is asked."""
    return f"Cook {await dish(context)}"


@tool
def linked() -> ResourceLink:
    """Link to a note that is not listed."""
    return ResourceLink("notes://milk", "milk")


@tool
def change(title: str, text: str) -> str:
    """Change a note."""
    NOTES[title] = text
    RESOURCES.updated(f"notes://{title}")
    return "changed"


@tool
def extend() -> str:
    """Offer one more resource and prompt, or no longer."""
    if "bytes://all" in RESOURCES:
        RESOURCES.remove("bytes://all")
        PROMPTS.remove("menu")
    else:
        RESOURCES.add(all_bytes)
        PROMPTS.add(menu)
    return "extended"


RESOURCES = ResourceBox(titles, note, dish)
PROMPTS = PromptBox(review)
FEATURES = Features(tools=ToolBox(linked, change, extend), resources=RESOURCES, prompts=PROMPTS)
