"""What a command serves, wherever its tools run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from bridge.tools.toolbox import ToolBox


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Tools to be served."""

    tools: ToolBox
    """The tools."""
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    """What is open while they are served; None for nothing."""
    last_act: Callable[[], None] = _nothing
    """Called where the process has to end before that is closed; from any thread."""
    servers: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """How each server behind the tools is, as ``bridge status --json`` has it."""
    version: str = ""
    """The version of what is served; empty where it says none."""
