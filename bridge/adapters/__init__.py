"""Tools for agents of other frameworks, and the tools of these as tools of this package.

Names are imported on first use (PEP 562), and with them the framework that they need.
"""

from __future__ import annotations

from importlib.util import find_spec

from bridge.errors import MissingExtraError
from bridge.exports import lazy_exports, modules_of

_names, _get, _dir = lazy_exports(__name__)

_PACKAGES = {
    "bridge.adapters.langchain": ("langchain_core", "langchain-core"),
    "bridge.adapters.langchain_agents": ("langchain", "langchain"),
    "bridge.adapters.openai_agents": ("agents", "openai-agents"),
    "bridge.adapters.pydantic_ai": ("pydantic_ai", "pydantic-ai-slim"),
}
"""Package that a module imports, and the distribution that has it."""
_missing = {module for module, (package, _) in _PACKAGES.items() if find_spec(package) is None}
_absent = {name for name, module in modules_of(__name__).items() if module in _missing}

__all__ = [name for name in _names if name not in _absent]


def __getattr__(name: str) -> object:
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        package, distribution = _PACKAGES.get(modules_of(__name__)[name], ("", ""))
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingExtraError(name, distribution) from error


def __dir__() -> list[str]:
    return [name for name in _dir() if name not in _absent]
