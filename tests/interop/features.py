"""Resources and prompts for clients of other projects: the server of `tests.interop.test_feature_clients`."""

from __future__ import annotations

from typing import Annotated, Literal

from bridge import P, PromptMessage, prompt, resource

BLOB = bytes(range(256))


@resource("notes://today", title="Today", mime_type="text/markdown", annotations={"priority": 0.5})
async def today() -> str:
    """The note of today."""
    return "# Été"


@resource("notes://seal", mime_type="image/png")
async def seal() -> bytes:
    """A picture."""
    return BLOB


@resource("notes://by/{author}{?language}", completions={"author": ["ada", "alan", "grace"]})
async def note(author: str, language: Literal["en", "fr"] = "en") -> dict[str, str]:
    """A note of somebody."""
    return {"author": author, "language": language}


@prompt(title="Review code", completions={"style": ["strict", "sparse", "kind"]})
async def review(code: Annotated[str, P("What to review.")], style: str = "kind") -> list[PromptMessage]:
    """Ask for a review."""
    return [PromptMessage(f"Be {style}: {code}"), PromptMessage("I will.", "assistant")]
