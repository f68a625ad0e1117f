"""The `tool` decorator, and the conversion of functions, objects and modules into tools.

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

The decorator only stores settings on the function. `tools_from` validates the function and computes everything that a
call needs.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from bridge.errors import DefinitionError
from bridge.tools.arguments.reader import ArgumentReader
from bridge.tools.checks import require_type
from bridge.tools.decoration import (
    F,
    Published,
    Settings,
    bound_method,
    decorated_methods,
    described,
    function_and_description,
    name_of,
    nothing_in,
    published_in,
    settings_in,
    store_settings,
)
from bridge.tools.dependencies import DependentExecutor
from bridge.tools.executors import ThreadExecutor, executor_class
from bridge.tools.labels import labelled
from bridge.tools.results import ResultWriter
from bridge.tools.schema.generator import ExtraArguments
from bridge.tools.schema.signature import signature_of, source_of
from bridge.tools.specification import ToolAnnotations, ToolSpecification, checked_icons, require_json
from bridge.tools.task import TaskPolicy
from bridge.tools.tool import ReturnBehavior, Tool, ToolPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

    from bridge.tools.executors import FunctionExecutor, Writer
    from bridge.tools.schema.signature import Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings(Settings):
    """Settings that tools, resources and prompts share; None means not specified.

    Raises:
        DefinitionError: A setting has the wrong type.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    icons: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] | None = None
    policy: ToolPolicy = field(default_factory=ToolPolicy)
    run_in_thread: bool = True
    tags: Collection[str] = ()
    version: str | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        for what in ("name", "title", "description"):
            require_type(getattr(self, what), str | None, what, "text")
        require_type(self.metadata, Mapping | None, "metadata", "a mapping")
        require_type(self.run_in_thread, bool, "run_in_thread", "True or False")
        require_type(self.enabled, bool, "enabled", "True or False")
        object.__setattr__(self, "metadata", labelled(self.metadata or {}, self.tags, self.version))
        object.__setattr__(self, "icons", checked_icons(self.icons, "icons"))

    def executor(
        self, function: Callable[..., Any], signature: Signature, name: str, writer: Writer
    ) -> FunctionExecutor:
        """Return the executor of a function.

        Raises:
            DefinitionError: The function does not allow it.
        """
        kind = executor_class(function, signature.injected, in_thread=self.run_in_thread)
        reader = ArgumentReader(name, signature.adapter, signature.internal_schema)
        if signature.dependencies:
            in_thread = issubclass(kind, ThreadExecutor)
            return DependentExecutor(function, reader, writer, signature, in_thread=in_thread)
        return kind(function, reader, writer, signature.injected)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings(FunctionSettings):
    """Settings given to `tool`; None means not specified."""

    annotations: ToolAnnotations | None = None
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    always_visible: bool = False
    strict: bool | None = None
    task: TaskPolicy | None = None
    extra_arguments: ExtraArguments = "forbid"

    def published(self, function: Callable[..., Any]) -> Tool:
        """Return the tool of a function."""
        return function_tool(function, self)


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
    annotations: ToolAnnotations | Mapping[str, Any] | BaseModel | None = None,
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM,
    always_visible: bool = False,
    strict: bool | None = None,
    timeout_seconds: float | None = None,
    max_output_chars: int | None = None,
    spill_chars: int | None = None,
    propagate: bool = False,
    task: bool | Literal["required"] | TaskPolicy = False,
    run_in_thread: bool = True,
    extra_arguments: ExtraArguments = "forbid",
    icons: Sequence[Mapping[str, Any]] = (),
    tags: Collection[str] = (),
    version: str | None = None,
    enabled: bool = True,
) -> Callable[[F], F]: ...
def tool(
    function: Any = None,
    /,
    *,
    description: str | None = None,
    name: str | None = None,
    title: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    annotations: ToolAnnotations | Mapping[str, Any] | BaseModel | None = None,
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM,
    always_visible: bool = False,
    strict: bool | None = None,
    timeout_seconds: float | None = None,
    max_output_chars: int | None = None,
    spill_chars: int | None = None,
    propagate: bool = False,
    task: bool | Literal["required"] | TaskPolicy = False,
    run_in_thread: bool = True,
    extra_arguments: ExtraArguments = "forbid",
    icons: Sequence[Mapping[str, Any]] = (),
    tags: Collection[str] = (),
    version: str | None = None,
    enabled: bool = True,
) -> Any:
    """Make a function or method a tool (LangChain4j's @Tool): ``@tool``, ``@tool("description")`` or ``@tool(name=…)``.

    The function itself is unchanged and can still be called. Coroutine functions run in the caller's event loop, other
    functions in a worker thread so that they do not block the event loop.

    Args:
        function: The function if the decorator is used without parentheses; otherwise the description.
        description: Text for the model: the tool's purpose and when to use it. Defaults to the docstring without its
            sections, or else to the name in words.
        name: Name under which the tool is called. Defaults to the function's name.
        title: Display name.
        metadata: Arbitrary data; sent over MCP in ``_meta``.
        annotations: Hints about the tool's behaviour: ToolAnnotations, a mapping with MCP's names (``{"readOnlyHint":
            True}``), or the SDK's model.
        return_behavior: Use of the result in an AI service: read by the model, or returned as the answer.
        always_visible: Show the tool to a model that searches for tools without a search; see `bridge.ToolSearch`.
        strict: Request strict schema adherence from model providers that support it.
        timeout_seconds: Maximum duration of one call; None leaves it to the caller.
        max_output_chars: Maximum characters of text that a model reads; longer texts are reduced to head and tail.
        spill_chars: Characters up to which a result stays whole; a larger one is kept aside, and the model reads a part
            of it and can read the rest. None leaves it to the server or service; see `bridge.tools.Spill`.
        propagate: Let unexpected exceptions stop the invocation instead of becoming a result.
        task: True makes each call a task for the clients that support tasks, whose result they fetch later; others
            get it directly, or with "required" an error. A `TaskPolicy` has further settings.
        run_in_thread: False calls a plain function in the event loop's thread. Faster, but only for functions that
            never block.
        extra_arguments: Treatment of unknown arguments: "forbid" refuses the call and suggests the nearest parameter;
            "ignore" drops them.
        icons: Icons in MCP's format.
        tags: Names of groups that it belongs to, by which it can be selected; see `bridge.filtered`.
        version: Version. Of several with the same name, the newest is listed; clients may name another.
        enabled: False hides it until it is enabled; see `bridge.Server.enable`.

    Raises:
        DefinitionError: The decorated object cannot be a tool, or a setting is invalid.
    """
    function, description = function_and_description(function, description, "tool")
    require_type(strict, bool | None, "strict", "True, False or None")
    require_type(return_behavior, ReturnBehavior, "return_behavior", f"one of {', '.join(map(str, ReturnBehavior))}")
    require_type(always_visible, bool, "always_visible", "True or False")
    if extra_arguments not in get_args(ExtraArguments):
        raise DefinitionError(f"extra_arguments must be 'forbid' or 'ignore', not {extra_arguments!r}")
    settings = ToolSettings(
        name=name,
        title=title,
        description=description,
        metadata=metadata,
        annotations=None if annotations is None else ToolAnnotations.of(annotations),
        return_behavior=return_behavior,
        always_visible=always_visible,
        strict=strict,
        icons=icons,
        policy=ToolPolicy(
            timeout_seconds=timeout_seconds,
            max_output_chars=max_output_chars,
            spill_chars=spill_chars,
            propagate=propagate,
        ),
        task=TaskPolicy.of(task),
        run_in_thread=run_in_thread,
        extra_arguments=extra_arguments,
        tags=tags,
        version=version,
        enabled=enabled,
    )
    require_json("a tool", name=name, title=title, description=description, metadata=metadata, icons=settings.icons)
    if function is not None:
        return store_settings(function, settings)
    return functools.partial(store_settings, settings=settings)


def settings_of(attribute: Any) -> ToolSettings | None:
    """Return the settings stored by `tool`; None if the object is not decorated."""
    return settings_in(attribute, ToolSettings)


def function_tool(function: Callable[..., Any], settings: ToolSettings | None = None) -> Tool:
    """Make a tool of a callable.

    Args:
        function: A function, bound method, partial or object with ``__call__``; decorated or not.
        settings: Overrides the settings stored by the decorator.

    Raises:
        DefinitionError: The callable cannot be a tool; the message names it, the parameter and the remedy.
    """
    settings = settings or settings_of(function) or _PLAIN
    signature = signature_of(function, settings.namespace, settings.extra_arguments)
    name = settings.name or name_of(function)
    writer = ResultWriter(name, signature.return_annotation, local_names=signature.local_names)
    return Tool(
        ToolSpecification(
            name=name,
            title=settings.title,
            # Some model providers reject tools without a description.
            description=settings.description or signature.description or name.replace("_", " "),
            parameters=signature.schema,
            output_schema=writer.output_schema,
            annotations=settings.annotations,
            metadata=settings.metadata or {},
            icons=tuple(settings.icons),
            strict=settings.strict,
        ),
        settings.executor(function, signature, name, writer),
        return_behavior=settings.return_behavior,
        always_visible=settings.always_visible,
        policy=settings.policy,
        task=settings.task,
        interactive="itself" in signature.injected.values(),
        source=source_of(function),
        enabled=settings.enabled,
    )


def tools_from(source: object) -> list[Tool]:
    """Return the tools of a source.

    Args:
        source: A Tool; a function, bound method, partial or object with ``__call__``, decorated or not; an object with
            decorated methods, inherited ones included; a class with decorated static and class methods; a module with
            decorated functions or Tools; a mapping of specifications to executors or functions in their place (see
            `Tool`); or an iterable of these, such as a list or a ToolBox.

    Returns:
        The tools in definition order. A method that overrides a tool is a tool as well; it keeps the overridden
            method's settings unless it has its own decorator.

    Raises:
        DefinitionError: The source has no tools, or one of them is invalid.
    """
    tools = tools_found_in(source)
    if not tools:
        raise nothing_in(source)
    return tools


def one_tool(source: object) -> Tool:
    """Return the only tool of a source; see `tools_from`.

    Raises:
        DefinitionError: The source has no tools, several tools, or an invalid one.
    """
    tools = tools_from(source)
    if len(tools) != 1:
        raise DefinitionError(f"expected one tool, but {described(source)} has {len(tools)}")
    return tools[0]


def tools_found_in(source: Any) -> list[Tool]:
    """Return the tools of a source, like `tools_from`, but accept an empty list or other empty source.

    Raises:
        DefinitionError: A tool is invalid, or an item of an iterable has no tools.
    """
    return [item for item in found_in(source) if isinstance(item, Tool)]


def found_in(source: Any) -> list[Published]:
    """Return the tools, resources and prompts of a source; a function that is not decorated is a tool.

    Raises:
        DefinitionError: One of them is invalid, or an item of an iterable has none.
    """
    return published_in(source, function_tool, lambda made: map(_made_by_hand, made.keys(), made.values()))


def specifications_from(source: object) -> list[ToolSpecification]:
    """Return the specifications of a source's tools (LangChain4j's ToolSpecifications.toolSpecificationsFrom).

    Args:
        source: See `tools_from`. Since nothing runs, a class may also have decorated instance methods, and such a
            method may be given by itself.

    Raises:
        DefinitionError: See `tools_from`.
    """
    if isinstance(source, type) and (methods := decorated_methods(source)):
        found = [each.published(bound_method(getattr(source, name))) for name, all_ in methods.items() for each in all_]
        made = [item for item in found if isinstance(item, Tool)]
    else:
        made = tools_from(bound_method(source))
    return [tool.specification for tool in made]


def _made_by_hand(specification: object, executor: Any) -> Tool:
    require_type(specification, ToolSpecification, "a key of a mapping of tools", "a ToolSpecification")
    if settings_of(executor) is not None:
        raise DefinitionError(
            f"{source_of(executor)} is a tool with a specification of its own; give it outside of the mapping, or as "
            "a function of the request and the context without @tool"
        )
    return Tool(specification, executor)  # type: ignore[arg-type]  # checked above
