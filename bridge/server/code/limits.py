"""Limits of the scripts of code mode."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from bridge.errors import MissingExtraError
from bridge.tools.checks import require_count, require_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLimits:
    """Limits of the scripts of code mode; experimental.

    Raises:
        DefinitionError: A limit is not positive.
    """

    max_seconds: float = 10.0
    """Maximum seconds that a script computes, and maximum seconds that it sleeps; waiting for tools does not count."""
    max_memory_bytes: int = 64 * 1024 * 1024
    """Maximum bytes of the values of a script."""
    max_calls: int = 100
    """Maximum calls of tools by a script."""
    max_output_chars: int = 50_000
    """Maximum characters of what a script prints, and of its result as JSON; longer ones are cut."""
    max_scripts: int = 8
    """Maximum scripts that run at the same time, each in a process of its own; one caller has at most half of them."""

    def __post_init__(self) -> None:
        require_seconds(self.max_seconds, "max_seconds")
        for name in ("max_memory_bytes", "max_calls", "max_output_chars", "max_scripts"):
            require_count(getattr(self, name), name)


def require_sandbox() -> None:
    """Raise an error if code mode cannot run.

    Raises:
        MissingExtraError: pydantic-monty is not installed.
    """
    if find_spec("pydantic_monty") is None:
        raise MissingExtraError("code mode (tools: code)", "pydantic-monty", "code")
