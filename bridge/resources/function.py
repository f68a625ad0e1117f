"""The `resource` decorator."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError
from bridge.resources.resource import ContentsWriter, Resource, ResourceTemplate
from bridge.resources.uri_template import UriTemplate
from bridge.tools.checks import require_type
from bridge.tools.completion import Completions
from bridge.tools.decoration import F, name_of, store_settings
from bridge.tools.function import FunctionSettings
from bridge.tools.schema.signature import signature_of, source_of
from bridge.tools.tool import ToolPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bridge.tools.completion import Completer
    from bridge.tools.schema.signature import Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSettings(FunctionSettings):
    """Settings given to `resource`; None means not specified."""

    uri: str
    mime_type: str | None = None
    size: int | None = None
    annotations: Mapping[str, Any] | None = None
    completions: Mapping[str, Completer] = field(default_factory=dict)

    def published(self, function: Callable[..., Any]) -> Resource | ResourceTemplate:
        """Return the resource, or template, that a function reads."""
        return function_resource(function, self)


def resource(
    uri: str,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    metadata: Mapping[str, Any] | None = None,
    completions: Mapping[str, Completer] | None = None,
    timeout_seconds: float | None = None,
    run_in_thread: bool = True,
    tags: Collection[str] = (),
    version: str | None = None,
    enabled: bool = True,
) -> Callable[[F], F]:
    """Make a function or method the reader of a resource: ``@resource("notes://{name}", mime_type="text/markdown")``.

    The function gets the values of the template's variables as arguments, converted and checked like those of a tool.
    It returns text, bytes, a `bridge.File`, a list of these for several contents, any other value for JSON, or None if
    there is no such resource. A parameter of type InvocationContext receives the context of the request. Coroutine
    functions run in the caller's event loop, other functions in a worker thread.

    Args:
        uri: URI, or URI template (RFC 6570). A template's variables are the names of the function's parameters;
            variables of the query, ``{?lang}``, are those of parameters with defaults.
        name: Name for programs. Defaults to the function's name.
        title: Display name.
        description: Text for models and users. Defaults to the docstring without its sections.
        mime_type: IANA media type of the content. Defaults to plain text for text, JSON for other values, and binary
            data for bytes.
        size: Length of the content in bytes; not for templates.
        annotations: Hints with MCP's keys: ``audience``, ``priority``, ``lastModified``.
        icons: Icons in MCP's format.
        metadata: Arbitrary data; sent over MCP in ``_meta``.
        completions: Values that clients may offer for a variable: a list, or a function of the text so far, the other
            values and the context. Choices of `Literal` and enums are offered by themselves.
        timeout_seconds: Maximum duration of one read; None leaves it to the caller.
        run_in_thread: False calls a plain function in the event loop's thread; only for functions that never block.
        tags: Names of groups that it belongs to, by which it can be selected; see `bridge.filtered`.
        version: Version. Of several with the same URI, the newest is listed; clients may name another.
        enabled: False hides it until it is enabled; see `bridge.Server.enable`.

    Raises:
        DefinitionError: A setting is invalid. What concerns the function is checked when it is published.
    """
    require_type(uri, str, "the URI of a resource", "text, as in @resource('notes://today')")
    require_type(mime_type, str | None, "mime_type", "text")
    require_type(completions, Mapping | None, "completions", "a mapping of completions by parameter")
    settings = ResourceSettings(
        uri=uri,
        name=name,
        title=title,
        description=description,
        mime_type=mime_type,
        size=size,
        annotations=annotations,
        icons=icons,
        metadata=metadata,
        completions=completions or {},
        policy=ToolPolicy(timeout_seconds=timeout_seconds),
        run_in_thread=run_in_thread,
        tags=tags,
        version=version,
        enabled=enabled,
    )
    return functools.partial(store_settings, settings=settings)


def function_resource(function: Callable[..., Any], settings: ResourceSettings) -> Resource | ResourceTemplate:
    """Make a resource, or a template, of a function.

    Raises:
        DefinitionError: The variables of the URI are not the parameters of the function, or another setting does not
            allow it; the message names the function and the remedy.
    """
    source, signature = source_of(function), signature_of(function, settings.namespace)
    name = settings.name or name_of(function)
    writer = ContentsWriter(name, settings.mime_type)
    shared: dict[str, Any] = {
        "name": name,
        "title": settings.title,
        "description": settings.description or signature.description,
        "mime_type": settings.mime_type,
        "annotations": settings.annotations,
        "icons": settings.icons,
        "metadata": settings.metadata,
        "reader": settings.executor(function, signature, name, writer),
        "policy": settings.policy,
        "interactive": "itself" in signature.injected.values(),
        "source": source,
        "enabled": settings.enabled,
    }
    if "{" not in settings.uri and "}" not in settings.uri:
        if signature.parameters:
            raise DefinitionError(
                f"{source} has the parameter {signature.parameters[0].name!r}, and its URI {settings.uri!r} no "
                f"variable for it; write {{{signature.parameters[0].name}}} into the URI"
            )
        if settings.completions:
            raise DefinitionError(f"{source} has completions, and its URI {settings.uri!r} no variables")
        return Resource(uri=settings.uri, size=settings.size, **shared)
    if settings.size is not None:
        raise DefinitionError(f"{source} has a size, and its URI {settings.uri!r} is a template of many resources")
    template = UriTemplate(settings.uri)
    _compare(template, signature, source)
    completions = Completions(source, signature.schema, settings.completions)
    return ResourceTemplate(uri_template=template, completions=completions or None, **shared)


def _compare(template: UriTemplate, signature: Signature, source: str) -> None:
    """Check that the variables of a template are the parameters of a function."""
    properties, required = signature.schema.get("properties", {}), signature.schema.get("required", ())
    for variable in template.variables:
        if variable not in properties:
            raise DefinitionError(
                f"{source} has no parameter {variable!r}, which is a variable of its URI {str(template)!r}"
            )
    for name in properties:
        if name not in template.variables and name in required:
            raise DefinitionError(
                f"{source} has the parameter {name!r}, and its URI {str(template)!r} no variable for it; write "
                f"{{{name}}} into the URI, or give the parameter a default"
            )
        if name in template.optional and name in required:
            raise DefinitionError(
                f"the parameter {name!r} of {source} needs a default, because a URI may leave out its query"
            )
