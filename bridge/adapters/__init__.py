"""Tools for agents of other frameworks, and the tools of these as tools of this package.

Names are imported on first use (PEP 562), and with them the framework that they need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bridge.errors import MissingExtraError

if TYPE_CHECKING:
    from bridge.adapters.anthropic import anthropic_tools, run_anthropic
    from bridge.adapters.langchain import PROGRESS_EVENT, LangChainTool, from_langchain, langchain_tools
    from bridge.adapters.langchain_agents import langchain_middleware
    from bridge.adapters.openai import openai_responses_tools, openai_tools, run_openai, run_openai_responses
    from bridge.adapters.openai_agents import from_openai_agents, openai_agents_server, openai_agents_tools
    from bridge.adapters.pydantic_ai import ToolProgressEvent, from_pydantic_ai, pydantic_ai_toolset
    from bridge.adapters.sdk import sdk_server

__all__ = [
    "PROGRESS_EVENT", "LangChainTool", "ToolProgressEvent", "anthropic_tools", "from_langchain", "from_openai_agents",
    "from_pydantic_ai", "langchain_middleware", "langchain_tools", "openai_agents_server", "openai_agents_tools",
    "openai_responses_tools", "openai_tools", "pydantic_ai_toolset", "run_anthropic", "run_openai",
    "run_openai_responses", "sdk_server",
]  # fmt: skip

_NAMES = {
    "bridge.adapters.anthropic": "anthropic_tools run_anthropic",
    "bridge.adapters.langchain": "LangChainTool PROGRESS_EVENT from_langchain langchain_tools",
    "bridge.adapters.langchain_agents": "langchain_middleware",
    "bridge.adapters.openai": "openai_responses_tools openai_tools run_openai run_openai_responses",
    "bridge.adapters.openai_agents": "from_openai_agents openai_agents_server openai_agents_tools",
    "bridge.adapters.pydantic_ai": "ToolProgressEvent from_pydantic_ai pydantic_ai_toolset",
    "bridge.adapters.sdk": "sdk_server",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
_PACKAGES = {
    "bridge.adapters.langchain": ("langchain_core", "langchain-core"),
    "bridge.adapters.langchain_agents": ("langchain", "langchain"),
    "bridge.adapters.openai_agents": ("agents", "openai-agents"),
    "bridge.adapters.pydantic_ai": ("pydantic_ai", "pydantic-ai-slim"),
}
"""Package that a module imports, and the distribution that has it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        package, distribution = _PACKAGES.get(module, ("", ""))
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(name, distribution) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
