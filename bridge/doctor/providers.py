"""Published rules of chat-model providers for tool definitions.

Schemas are judged by the conversions of `bridge.models.profiles`, which hold the providers' rules for schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.models.profiles.profile import ANTHROPIC, BEDROCK, GEMINI, OPENAI, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Rules of one provider."""

    profile: Profile
    """Rules and conversion of schemas."""
    tool_name: re.Pattern[str]
    """Pattern of a valid tool name."""
    has_adapter: bool = True
    """True if bridge has a chat model of this provider, which replaces invalid names."""
    has_strict_mode: bool = True
    """True if the provider enforces strict schemas."""
    max_tools: int | None = None
    """Maximum tools of a request; None for no published limit."""

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.profile.name


PROVIDERS = (
    Provider(profile=OPENAI, tool_name=re.compile(r"[A-Za-z0-9_-]{1,64}"), max_tools=128),
    Provider(profile=ANTHROPIC, tool_name=re.compile(r"[A-Za-z0-9_-]{1,128}")),
    Provider(profile=BEDROCK, tool_name=re.compile(r"[A-Za-z0-9_-]{1,64}")),
    Provider(
        profile=GEMINI,
        tool_name=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"),
        has_adapter=False,
        has_strict_mode=False,
        max_tools=512,
    ),
)
"""OpenAI, "Function calling"; Anthropic, "Define tools"; Amazon Bedrock, ``ToolSpecification``; Gemini,
``FunctionDeclaration``."""
