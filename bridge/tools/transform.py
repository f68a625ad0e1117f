"""Transforms: functions that return changed tools. They compose, and `ToolBox.transformed` applies them to later tools.

    box = provider.tools.transformed(lambda tools: wrapped(filtered(tools, exclude={"delete"}), traced))

A renamed tool keeps its executor, and executors of remote tools store the remote name themselves.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from bridge.errors import ArgumentsError, DefinitionError
from bridge.tools.annotated_checks import checked
from bridge.tools.checks import require_callable, require_count, returns_nothing
from bridge.tools.decoration import Published, Publisher
from bridge.tools.function import found_in, one_tool, tools_found_in
from bridge.tools.middleware import Middleware, WrappedExecutor, layers_of
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutionResult, ToolExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import ToolMiddleware

_logger = logging.getLogger("bridge.tools")

_HASH_CHARS = 8
S_co = TypeVar("S_co", covariant=True)


class Selectable(Protocol[S_co]):
    """Something of which a part can be selected: a `bridge.Server`, `bridge.server.Features`."""

    def selected(self, keep: Callable[[Published], bool]) -> S_co:
        """Return the tools, resources and prompts, now and later, for which a function returns True."""
        ...


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


@overload
def filtered(  # type: ignore[overload-overlap]  # more special than any object
    source: Selectable[S_co],
    keep: Callable[[Any], bool] = ...,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    tags: Collection[str] | None = None,
    without_tags: Collection[str] = (),
) -> S_co: ...
@overload
def filtered(
    source: Iterable[Tool] | Callable[..., Any],
    keep: Callable[[Tool], bool] = ...,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    tags: Collection[str] | None = None,
    without_tags: Collection[str] = (),
) -> Iterator[Tool]: ...
@overload
def filtered(
    source: object,
    keep: Callable[[Any], bool] = ...,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    tags: Collection[str] | None = None,
    without_tags: Collection[str] = (),
) -> Iterator[Any]: ...
@checked()
def filtered(
    source: object,
    keep: Callable[[Any], bool] = lambda _: True,
    *,
    include: Collection[str] | None = None,
    exclude: Collection[str] = (),
    tags: Collection[str] | None = None,
    without_tags: Collection[str] = (),
) -> Any:
    """Select the tools, resources and prompts that pass all the filters.

    Args:
        source: Any source of a ToolBox (see `tools_from`); a list may be empty. Of a `bridge.Server` or
            `bridge.server.Features`, the selection is Features, which follow later changes.
        keep: Returns True for an item to select.
        include: The only names to select; None for all.
        exclude: Names to leave out.
        tags: Select only what has one of these tags; None for all.
        without_tags: Leave out what has one of these tags.

    Raises:
        DefinitionError: A source has no tools, resources and prompts, or names or tags are given as text.
    """
    require_callable(keep, 1, "keep", "an item")

    def passes(item: Published) -> bool:
        return (
            (include is None or item.name in include)
            and item.name not in exclude
            and (tags is None or not item.tags.isdisjoint(tags))
            and (not without_tags or item.tags.isdisjoint(without_tags))
            and keep(item)
        )

    if isinstance(source, Publisher):
        return source.selected(passes)
    return filter(passes, found_in(source))


def respecified(tools: object, change: Callable[[ToolSpecification], ToolSpecification]) -> Iterator[Tool]:
    """Change the whole specification of each tool: its name, description, schema, annotations or metadata.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        change: Returns the new specification (LangChain4j's toolSpecificationMapper).

    Raises:
        DefinitionError: A source has no tools, or ``change`` did not return a specification.
    """
    return (replace(tool, specification=_changed(tool, change)) for tool in tools_found_in(tools))


def wrapped(tools: object, *middleware: ToolMiddleware | Middleware) -> Iterator[Tool]:
    """Run coroutine functions around each call of the tools, for tracing, guards or changed requests and results.

    Args:
        tools: Any source of a ToolBox (see `tools_from`); a list may be empty.
        middleware: Functions that receive the request, whose arguments are a mapping, the context, and ``call_next``,
            which runs the tool (LangChain4j's toolWrapper), or `bridge.Middleware`, of which the methods for calls are
            used; the first is the outermost.

    Raises:
        DefinitionError: A source has no tools, or a middleware takes other arguments, or never returns a result.
    """
    used = [each for each in middleware if _checked(each)]
    return (_wrapped(tool, used) for tool in tools_found_in(tools))


def _checked(middleware: ToolMiddleware | Middleware) -> bool:
    """Return False for middleware without methods for calls."""
    if isinstance(middleware, Middleware):
        return bool(layers_of((middleware,), "call_tool"))
    require_callable(middleware, 3, "a middleware", "the request, the context and call_next")
    if returns_nothing(middleware):
        raise DefinitionError(f"the middleware {middleware!r} never returns a result; return that of call_next")
    return True


def _wrapped(tool: Tool, middleware: Sequence[ToolMiddleware | Middleware]) -> Tool:
    for each in reversed(middleware):
        tool = replace(tool, executor=WrappedExecutor(tool.executor, each), interactive=True)  # it may ask
    return tool


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
    require_count(max_chars, "max_chars")
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
