"""Transforms: functions that return changed tools. They compose, and `ToolBox.transformed` applies them to later tools.

    box = provider.tools.transformed(lambda tools: wrapped(filtered(tools, exclude={"delete"}), traced))

A renamed tool keeps its executor, and executors of remote tools store the remote name themselves.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING

from bridge.errors import ArgumentsError, DefinitionError
from bridge.text import short_repr
from bridge.tools.checks import require_callable, returns_nothing
from bridge.tools.function import one_tool, tools_found_in
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutionResult, ToolExecutor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from bridge.tools.context import InvocationContext

_logger = logging.getLogger("bridge.tools")

_HASH_CHARS = 8

CallNext = Callable[[ToolExecutionRequest, "InvocationContext"], Awaitable[ToolExecutionResult]]
"""Runs the tool, or the next middleware."""
ToolMiddleware = Callable[[ToolExecutionRequest, "InvocationContext", CallNext], Awaitable[ToolExecutionResult]]
"""Runs around a tool: receives the request, the context and the function that runs the tool."""


def renamed(tool: object, name: str) -> Tool:
    """Return the tool under another name; the same object if it already has that name.

    Args:
        tool: A Tool or function, or another source with one tool (see `tools_from`).
        name: The new name.

    Raises:
        DefinitionError: The source has no tool, or several.
    """
    if not isinstance(tool, Tool):
        tool = one_tool(tool)
    return tool if tool.name == name else replace(tool, specification=replace(tool.specification, name=name))


def prefixed(tools: object, prefix: str) -> Iterator[Tool]:
    """Add a prefix to the name of each tool: ``prefixed(tools, "github_")``.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        prefix: The prefix.

    Raises:
        DefinitionError: A source has no tools.
    """
    return (renamed(tool, prefix + tool.name) for tool in tools_found_in(tools))


def filtered(
    tools: object,
    keep: Callable[[Tool], bool] = lambda _: True,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
) -> Iterator[Tool]:
    """Select the tools that pass all the filters.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        keep: Returns True for a tool to select.
        include: The only names to select; None for all.
        exclude: Names to leave out.

    Raises:
        DefinitionError: A source has no tools.
    """
    return (
        tool
        for tool in tools_found_in(tools)
        if (include is None or tool.name in include) and tool.name not in exclude and keep(tool)
    )


def respecified(tools: object, change: Callable[[ToolSpecification], ToolSpecification]) -> Iterator[Tool]:
    """Change the whole specification of each tool: its name, description, schema, annotations or metadata.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        change: Returns the new specification (LangChain4j's toolSpecificationMapper).

    Raises:
        DefinitionError: A source has no tools, or ``change`` did not return a specification.
    """
    return (replace(tool, specification=_changed(tool, change)) for tool in tools_found_in(tools))


def wrapped(tools: object, middleware: ToolMiddleware) -> Iterator[Tool]:
    """Run a coroutine function around each call of the tools, for tracing, guards or changed requests and results.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        middleware: Receives the request, whose arguments are a mapping, the context, and ``call_next``, which runs the
            tool (LangChain4j's toolWrapper).

    Raises:
        DefinitionError: A source has no tools, or the middleware takes other arguments, or never returns a result.
    """
    require_callable(middleware, 3, "a middleware", "the request, the context and call_next")
    if returns_nothing(middleware):
        raise DefinitionError(f"the middleware {middleware!r} never returns a result; return that of call_next")
    return (
        replace(tool, executor=WrappedExecutor(tool.executor, middleware), interactive=True)  # the middleware may ask
        for tool in tools_found_in(tools)
    )


def backed_up(source: object, *fallbacks: object) -> Tool:
    """Run other tools in place of one that fails, in order: ``backed_up(primary, secondary, "No data at present.")``.

    Failures are exceptions, except for invalid arguments, and results with ``is_error``, such as those of remote tools.
    If all fail, the last failure applies. The tool's timeout covers the fallbacks as well.

    Args:
        source: A Tool or a function.
        fallbacks: Tools or functions that take the same arguments, or text that is the result.

    Raises:
        DefinitionError: The source or a fallback is not one tool, or there is no fallback.
    """
    if not fallbacks:
        raise DefinitionError("backed_up needs a fallback: a Tool, a function, or text")
    tool = one_tool(source)
    others = (_Answer(each) if isinstance(each, str) else one_tool(each).executor for each in fallbacks)
    return replace(tool, executor=_BackedUp((tool.executor, *others)))


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str

    async def execute(self, *_: object) -> ToolExecutionResult:
        return ToolExecutionResult.of_text(self.text)


@dataclass(frozen=True, slots=True)
class _BackedUp:
    executors: tuple[ToolExecutor, ...]

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        *first, last = self.executors
        for executor in first:
            try:
                result = await executor.execute(request, context)
            except ArgumentsError:
                raise
            except Exception as error:  # noqa: BLE001 - any failure
                _logger.warning("the tool %r failed (%s); a fallback follows", request.name, error)
            else:
                if not result.is_error:
                    return result
        return await last.execute(request, context)


def _changed(tool: Tool, change: Callable[[ToolSpecification], ToolSpecification]) -> ToolSpecification:
    specification = change(tool.specification)
    if not isinstance(specification, ToolSpecification):
        raise DefinitionError(f"{change!r} returned {specification!r} for {tool.name!r}, not a ToolSpecification")
    return specification


@dataclass(frozen=True, slots=True)
class WrappedExecutor:
    """Executor with a middleware; compared by value, so that a ToolBox recognizes unchanged tools."""

    executor: ToolExecutor
    middleware: ToolMiddleware

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`."""
        returned: object = self.middleware(request, context, self.executor.execute)
        result = await returned if inspect.isawaitable(returned) else returned
        if not isinstance(result, ToolExecutionResult):
            raise DefinitionError(
                f"the middleware {self.middleware!r} returned {short_repr(result)}; return a ToolExecutionResult, such "
                "as that of call_next"
            )
        return result


def safe_names(names: Iterable[str], *, max_chars: int = 64, forbidden: str = r"[^A-Za-z0-9_-]") -> dict[str, str]:
    """Map names to unique names that a chat model's provider accepts.

    Forbidden characters become underscores. A hash of the full name is appended if the name is too long, or if several
    names would become equal; a name that is safe already stays unchanged. The result depends on the set of names, not
    on their order.

    Args:
        names: The original names; duplicates are ignored.
        max_chars: Maximum length of a safe name.
        forbidden: Regular expression for one forbidden character.

    Returns:
        The safe name for each name; safe names are unique.
    """
    candidates = {name: re.sub(forbidden, "_", name) for name in names}
    counts = Counter(candidates.values())
    safe = {
        name: candidate
        for name, candidate in candidates.items()
        if len(candidate) <= max_chars and (name == candidate or counts[candidate] == 1)
    }
    taken = set(safe.values())
    for name in sorted(candidates.keys() - safe.keys()):
        safe[name] = next(
            candidate for candidate in _hashed(candidates[name], name, max_chars) if candidate not in taken
        )
        taken.add(safe[name])
    return {name: safe[name] for name in candidates}


def _hashed(candidate: str, name: str, max_chars: int) -> Iterator[str]:
    """Yield names with a hash; several, since another tool may already be named like the first."""
    for attempt in count():
        digest = sha256(f"{name}{' ' * attempt}".encode()).hexdigest()
        yield f"{candidate[: max_chars - _HASH_CHARS - 1]}_{digest[:_HASH_CHARS]}"
