"""The `prompt` decorator."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from bridge.prompts.prompt import MessagesWriter, Prompt, PromptArgument
from bridge.tools.checks import require_type
from bridge.tools.completion import Completions
from bridge.tools.decoration import F, function_and_description, name_of, store_settings
from bridge.tools.function import FunctionSettings
from bridge.tools.schema.signature import signature_of, source_of
from bridge.tools.tool import ToolPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bridge.tools.completion import Completer


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSettings(FunctionSettings):
    """Settings given to `prompt`; None means not specified."""

    completions: Mapping[str, Completer] = field(default_factory=dict)

    def published(self, function: Callable[..., Any]) -> Prompt:
        """Return the prompt that a function renders."""
        return function_prompt(function, self)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(
    text: str | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    metadata: Mapping[str, Any] | None = None,
    completions: Mapping[str, Completer] | None = None,
    timeout_seconds: float | None = None,
    run_in_thread: bool = True,
    tags: Collection[str] = (),
    version: str | None = None,
    enabled: bool = True,
) -> Callable[[F], F]: ...
def prompt(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    metadata: Mapping[str, Any] | None = None,
    completions: Mapping[str, Completer] | None = None,
    timeout_seconds: float | None = None,
    run_in_thread: bool = True,
    tags: Collection[str] = (),
    version: str | None = None,
    enabled: bool = True,
) -> Any:
    """Make a function or method a prompt: ``@prompt``, ``@prompt("description")`` or ``@prompt(title="Review code")``.

    The function gets the arguments, which MCP sends as text, converted and checked like those of a tool. It returns
    text, a content block, a `bridge.PromptMessage`, or a list of these. A parameter of type InvocationContext receives
    the context of the request. Coroutine functions run in the caller's event loop, other functions in a worker thread.

    Args:
        function: The function if the decorator is used without parentheses; otherwise the description.
        name: Name of the prompt. Defaults to the function's name.
        title: Display name.
        description: Text for users. Defaults to the docstring without its sections.
        icons: Icons in MCP's format.
        metadata: Arbitrary data; sent over MCP in ``_meta``.
        completions: Values that clients may offer for an argument: a list, or a function of the text so far, the other
            arguments and the context. Choices of `Literal` and enums are offered by themselves.
        timeout_seconds: Maximum duration of rendering; None leaves it to the caller.
        run_in_thread: False calls a plain function in the event loop's thread; only for functions that never block.
        tags: Names of groups that it belongs to, by which it can be selected; see `bridge.filtered`.
        version: Version. Of several with the same name, the newest is listed; clients may name another.
        enabled: False hides it until it is enabled; see `bridge.Server.enable`.

    Raises:
        DefinitionError: The decorated object cannot be a prompt, or a setting is invalid.
    """
    function, description = function_and_description(function, description, "prompt")
    require_type(completions, Mapping | None, "completions", "a mapping of completions by argument")
    settings = PromptSettings(
        name=name,
        title=title,
        description=description,
        icons=icons,
        metadata=metadata,
        completions=completions or {},
        policy=ToolPolicy(timeout_seconds=timeout_seconds),
        run_in_thread=run_in_thread,
        tags=tags,
        version=version,
        enabled=enabled,
    )
    if function is not None:
        return store_settings(function, settings)
    return functools.partial(store_settings, settings=settings)


def function_prompt(function: Callable[..., Any], settings: PromptSettings) -> Prompt:
    """Make a prompt of a function.

    Raises:
        DefinitionError: The function, or a setting, does not allow it; the message names them and the remedy.
    """
    source, signature = source_of(function), signature_of(function, settings.namespace)
    name = settings.name or name_of(function)
    required = signature.schema.get("required", ())
    return Prompt(
        name=name,
        title=settings.title,
        description=settings.description or signature.description,
        arguments=tuple(
            PromptArgument(
                name=argument,
                title=schema.get("title"),
                description=schema.get("description"),
                required=argument in required,
            )
            for argument, schema in signature.schema.get("properties", {}).items()
        ),
        icons=tuple(settings.icons),
        metadata=settings.metadata or {},
        renderer=settings.executor(function, signature, name, MessagesWriter(name)),
        policy=settings.policy,
        interactive="itself" in signature.injected.values(),
        completions=Completions(source, signature.schema, settings.completions) or None,
        source=source,
        enabled=settings.enabled,
    )
