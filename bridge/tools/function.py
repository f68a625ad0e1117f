"""Functions as tools: the decorator, and what runs a decorated function.

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

The decorator only notes what the author wants; the function stays what it was. What can be wrong is found when the
tool is made (`tools_from`), where everything a call needs is computed once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

from bridge.errors import DefinitionError
from bridge.tools.arguments import ArgumentReader
from bridge.tools.executors import FunctionExecutor, executor_class
from bridge.tools.results import ResultWriter
from bridge.tools.schema.annotations import annotation_namespace
from bridge.tools.schema.generator import ExtraArguments
from bridge.tools.schema.signature import signature_of, source_of
from bridge.tools.specification import ToolAnnotations, ToolSpecification, checked_icons, require_json, require_type
from bridge.tools.tool import ReturnBehavior, Tool, ToolPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.tools.specification import AnnotationsModel

__all__ = [
    "FunctionExecutor",
    "ToolSettings",
    "function_tool",
    "one_tool",
    "settings_of",
    "tool",
    "tools_found_in",
    "tools_from",
]

_SETTINGS = "__bridge_tool__"
_MAX_REPR_CHARS = 100

F = TypeVar("F", bound="Callable[..., Any] | staticmethod[Any, Any] | classmethod[Any, Any, Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """What the author of a function said about it as a tool; None is unsaid."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    annotations: ToolAnnotations | None = None
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    strict: bool | None = None
    icons: tuple[Mapping[str, Any], ...] = ()
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    run_in_thread: bool = True
    extra_arguments: ExtraArguments = "forbid"
    namespace: Mapping[str, Any] = field(default_factory=dict)
    """Names of the defining scope that the function's annotations use and its module does not have."""


_PLAIN = ToolSettings()


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    text: str | None = None,
    /,
    *,
    description: str | None = None,
    name: str | None = None,
    title: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    annotations: ToolAnnotations | Mapping[str, Any] | AnnotationsModel | None = None,
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM,
    strict: bool | None = None,
    timeout_seconds: float | None = None,
    max_output_chars: int | None = None,
    propagate: bool = False,
    run_in_thread: bool = True,
    extra_arguments: ExtraArguments = "forbid",
    icons: Sequence[Mapping[str, Any]] = (),
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    description: str | None = None,
    name: str | None = None,
    title: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    annotations: ToolAnnotations | Mapping[str, Any] | AnnotationsModel | None = None,
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM,
    strict: bool | None = None,
    timeout_seconds: float | None = None,
    max_output_chars: int | None = None,
    propagate: bool = False,
    run_in_thread: bool = True,
    extra_arguments: ExtraArguments = "forbid",
    icons: Sequence[Mapping[str, Any]] = (),
) -> Any:
    """Make a function or method a tool (LangChain4j's @Tool): ``@tool``, ``@tool("description")`` or ``@tool(name=…)``.

    The function stays as it is, and callable as it was. A coroutine function runs where its caller runs; any other
    function runs in a worker thread, so that it cannot hold up other calls.

    Args:
        function: The function, where the decorator stands bare; or the description.
        description: What the tool does and when to use it, for the model; by default the docstring
            without its sections, or else the name in words.
        name: What callers call the tool; by default the function's name.
        title: A name for people.
        metadata: Free data; travels over MCP in ``_meta``.
        annotations: Hints about the tool's behaviour: ToolAnnotations, a mapping with MCP's names
            (``{"readOnlyHint": True}``), or the SDK's own.
        return_behavior: What becomes of the result in an AI service.
        strict: Ask a model provider that can to hold the model to the schema.
        timeout_seconds: How long one call may take; None leaves it to the caller.
        max_output_chars: How many characters of text a model reads; of a longer text it reads head and tail.
        propagate: An unexpected exception stops the invocation instead of becoming a result.
        run_in_thread: False calls a plain function in the event loop's thread: faster by a thread's hop, and only for
            functions that never block.
        extra_arguments: What happens to arguments that are no parameters: "forbid" refuses the call, naming the
            nearest parameter; "ignore" leaves them out.
        icons: Icons as MCP writes them.

    Raises:
        DefinitionError: What is decorated cannot be a tool, or what is said of it is nothing that a tool can say.
    """
    if isinstance(function, str):
        if description is not None:
            raise DefinitionError(f"the tool has two descriptions, {function!r} and {description!r}; keep one")
        function, description = None, function
    for what, text in (("name", name), ("title", title), ("description", description)):
        require_type(text, str | None, what, "text")
    require_type(metadata, Mapping | None, "metadata", "a mapping")
    require_type(strict, bool | None, "strict", "True, False or None")
    require_type(return_behavior, ReturnBehavior, "return_behavior", f"one of {', '.join(map(str, ReturnBehavior))}")
    require_type(run_in_thread, bool, "run_in_thread", "True or False")
    if extra_arguments not in get_args(ExtraArguments):
        raise DefinitionError(f"extra_arguments must be 'forbid' or 'ignore', not {extra_arguments!r}")
    icons = checked_icons(icons, "icons")
    require_json("a tool", name=name, title=title, description=description, metadata=metadata, icons=icons)
    settings = ToolSettings(
        name=name,
        title=title,
        description=description,
        metadata=metadata or {},
        annotations=None if annotations is None else ToolAnnotations.of(annotations),
        return_behavior=return_behavior,
        strict=strict,
        icons=icons,
        policy=ToolPolicy(timeout_seconds=timeout_seconds, max_output_chars=max_output_chars, propagate=propagate),
        run_in_thread=run_in_thread,
        extra_arguments=extra_arguments,
    )
    if function is not None:
        return _noted(function, settings)
    return functools.partial(_noted, settings=settings)


def _noted(function: F, settings: ToolSettings) -> F:
    target: Any = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    if isinstance(target, type) or not callable(target):
        raise DefinitionError(f"{target!r} cannot be a tool; decorate a function, or the methods of the class")
    settings = replace(settings, namespace=annotation_namespace(target, inspect.currentframe()))
    try:
        setattr(target, _SETTINGS, settings)
    except AttributeError:
        raise DefinitionError(f"{target!r} cannot be decorated; wrap it in a function of your own") from None
    return function


def settings_of(attribute: Any) -> ToolSettings | None:
    """What `tool` noted on a function, method, staticmethod or classmethod; None where it was not decorated."""
    if isinstance(attribute, staticmethod | classmethod):
        attribute = attribute.__func__
    if isinstance(attribute, type):
        return None
    settings = getattr(attribute, _SETTINGS, None)
    return settings if isinstance(settings, ToolSettings) else None


def function_tool(function: Callable[..., Any], settings: ToolSettings | None = None) -> Tool:
    """Make a tool of anything callable.

    Args:
        function: A function, bound method, partial or object with ``__call__``; decorated or not.
        settings: Instead of what its decorator noted.

    Raises:
        DefinitionError: It cannot be a tool; the message names it, the parameter and the remedy.
    """
    settings = settings or settings_of(function) or _PLAIN
    signature = signature_of(function, settings.namespace, settings.extra_arguments)
    executor = executor_class(function, signature.injected, in_thread=settings.run_in_thread)
    name = settings.name or _name_of(function)
    reader = ArgumentReader(name, signature.adapter, signature.internal_schema)
    writer = ResultWriter(name, signature.return_annotation, signature.has_return_annotation)
    return Tool(
        ToolSpecification(
            name=name,
            title=settings.title,
            # Some providers refuse a tool without a description.
            description=settings.description or signature.description or name.replace("_", " "),
            parameters=signature.schema,
            output_schema=writer.output_schema,
            annotations=settings.annotations,
            metadata=settings.metadata,
            icons=settings.icons,
            strict=settings.strict,
        ),
        executor(function, reader, writer, signature.injected),
        return_behavior=settings.return_behavior,
        policy=settings.policy,
        interactive="itself" in signature.injected.values(),
        source=source_of(function),
    )


def tools_from(source: object) -> list[Tool]:
    """The tools that something holds.

    Args:
        source: A Tool; a function, bound method, partial or object with ``__call__``, decorated or not; an object with
            decorated methods, inherited ones included; a class with decorated static and class methods; a module with
            decorated functions or Tools; or an iterable of all these, such as a list or a ToolBox.

    Returns:
        The tools, in the order in which they were defined. A method that overrides a tool is that tool, with the
        settings of its own decorator or else with those of the overridden one.

    Raises:
        DefinitionError: There is no tool in it, or one that cannot be made.
    """
    tools = tools_found_in(source)
    if not tools:
        raise DefinitionError(f"there are no tools in {_described(source)}; decorate functions or methods with @tool")
    return tools


def one_tool(source: object) -> Tool:
    """The only tool that something holds.

    Args:
        source: As for `tools_from`.

    Raises:
        DefinitionError: As for `tools_from`, or there are several.
    """
    tools = tools_from(source)
    if len(tools) != 1:
        raise DefinitionError(f"one tool was wanted, and {_described(source)} holds {len(tools)}")
    return tools[0]


def tools_found_in(source: Any) -> list[Tool]:
    """As `tools_from`; a list, or what else can be empty, may hold none.

    Raises:
        DefinitionError: One of the tools cannot be made, or an item of an iterable holds none.
    """
    if isinstance(source, Tool):
        return [source]
    if isinstance(source, ModuleType | type):
        return _tools_of_module(source) if isinstance(source, ModuleType) else _tools_of_class(source)
    if inspect.isroutine(source) or isinstance(source, functools.partial) or settings_of(source):
        return [function_tool(source)]
    if methods := _decorated_methods(type(source)):
        return [function_tool(getattr(source, name), settings) for name, settings in methods.items()]
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return [tool for item in source for tool in tools_from(item)]
    return [function_tool(source)] if callable(source) else []


def _tools_of_module(module: ModuleType) -> list[Tool]:
    found = {id(value): value for value in vars(module).values() if isinstance(value, Tool) or settings_of(value)}
    return [tool for value in found.values() for tool in tools_found_in(value)]


def _tools_of_class(owner: type) -> list[Tool]:
    methods = _decorated_methods(owner)
    for name in methods:
        if not isinstance(inspect.getattr_static(owner, name), staticmethod | classmethod):
            raise DefinitionError(
                f"the tool {name!r} of the class {owner.__qualname__!r} needs an instance; pass {owner.__name__}(…)"
            )
    return [function_tool(getattr(owner, name), settings) for name, settings in methods.items()]


def _decorated_methods(owner: type) -> dict[str, ToolSettings]:
    """The names of a class's tools, those of its farthest base first, with the settings that count."""
    found: dict[str, ToolSettings] = {}
    for base in reversed(owner.__mro__):
        for name, attribute in vars(base).items():
            if settings := settings_of(attribute):
                found[name] = settings
            elif attribute is None:
                found.pop(name, None)  # Python's way to take an inherited method away
    return found


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__name__", None) or type(function).__name__
    return name


def _described(source: object) -> str:
    if isinstance(source, ModuleType):
        return f"the module {source.__name__!r}"
    if isinstance(source, type):
        return f"the class {source.__qualname__!r}"
    text = repr(source)
    return text if len(text) <= _MAX_REPR_CHARS else f"{text[:_MAX_REPR_CHARS]}…"
