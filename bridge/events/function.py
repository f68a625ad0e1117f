"""The `event` decorator: a function whose first parameter is the payload, and whose others filter a subscription."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from bridge.errors import DefinitionError, ResultError
from bridge.events.event_type import DELIVERIES, EventType
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.decoration import name_of
from bridge.tools.function import FunctionSettings
from bridge.tools.schema.annotations import annotation_namespace
from bridge.tools.schema.signature import signature_of, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from bridge.events.event_type import Delivery, Selector
    from bridge.tools.context import InvocationContext
    from bridge.tools.executors import FunctionExecutor
    from bridge.types import Json


_DEFINITIONS = "#/$defs/"


def event(
    name: str | None = None,
    /,
    *,
    title: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    delivery: Collection[Delivery] = DELIVERIES,
    tags: Collection[str] = (),
    run_in_thread: bool = True,
) -> Callable[[Callable[..., Any]], EventType]:
    """Make a function a type of event: ``@event("build.finished")``.

    The first parameter is the payload, whose annotation is the schema of the data. The others are arguments of a
    subscription, and need defaults if a client may leave them out. For each event and subscription the function returns
    True or None if the subscription gets the event, False if it does not, or the data that the subscription gets. A
    parameter of type InvocationContext receives the context of the subscription, with its caller.

    Args:
        name: Name of the type. Defaults to the function's name.
        title: Display name.
        description: Text for models and users. Defaults to the docstring without its sections.
        metadata: Arbitrary data; sent over MCP in ``_meta``.
        delivery: Ways in which events are delivered.
        tags: Names of groups that it belongs to, by which it can be selected.
        run_in_thread: False calls a plain function in the event loop's thread; only for functions that never block.

    Raises:
        DefinitionError: The function has no payload, or a setting is invalid.
    """

    def decorate(function: Callable[..., Any]) -> EventType:
        namespace = annotation_namespace(function, inspect.currentframe())
        settings = FunctionSettings(
            namespace=namespace, metadata=metadata, tags=tags, run_in_thread=run_in_thread, description=description
        )
        source, signature = source_of(function), signature_of(function, namespace)
        if not signature.parameters:
            raise DefinitionError(f"{source} has no parameter for the payload of its events; give it one")
        payload, called = signature.parameters[0].name, name or name_of(function)
        properties: Json = dict(signature.schema["properties"])
        definitions: Json = signature.schema.get("$defs", {})
        payload_schema = _object_schema(properties.pop(payload), definitions, source)
        required = [each for each in signature.schema.get("required", ()) if each != payload]
        input_schema = _with_definitions(
            {"type": "object", "properties": properties, "additionalProperties": False}, definitions
        )
        executor = settings.executor(function, signature, called, _SelectionWriter(called))
        return EventType(
            name=called,
            title=title,
            description=description or signature.description,
            input_schema=input_schema | ({"required": required} if required else {}),
            payload_schema=payload_schema,
            delivery=tuple(delivery),
            metadata=settings.metadata or {},
            selector=_selector(executor, called, payload),
            source=source,
        )

    return decorate


def _object_schema(schema: Json, definitions: Json, source: str) -> Json:
    """Return the schema of the payload with its definitions.

    Raises:
        DefinitionError: It is not that of an object.
    """
    reference = schema.get("$ref", "").removeprefix(_DEFINITIONS)
    found: Json = definitions.get(reference, schema)
    if found.get("type") != "object":
        raise DefinitionError(f"the payload of {source} is an object: annotate it as a dict, TypedDict, model or class")
    return _with_definitions(found, definitions)


def _with_definitions(schema: Json, definitions: Json) -> Json:
    """Return a schema with the definitions that it refers to, also by way of others."""
    used: Json = {}
    texts = [json.dumps(schema)]
    while texts:
        text = texts.pop()
        for name in definitions.keys() - used.keys():
            if json.dumps(_DEFINITIONS + name) in text:
                used[name] = definitions[name]
                texts.append(json.dumps(definitions[name]))
    return {**schema, "$defs": used} if used else schema


def _selector(executor: FunctionExecutor, name: str, payload: str) -> Selector:
    async def select(
        data: Mapping[str, Any], arguments: Mapping[str, Any], context: InvocationContext
    ) -> Mapping[str, Any] | None:
        request = ToolExecutionRequest(name, {**arguments, payload: dict(data)})
        selected = (await executor.execute(request, context)).value
        return data if selected is True else selected

    return select


class _SelectionWriter:
    """Converts what the function of a type returns: True for the event as it is, other data, or None for no event."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, value: Any) -> ToolExecutionResult:
        """Convert a return value.

        Raises:
            ResultError: It is neither a bool nor an object.
        """
        selected: Any = value
        if value is None or isinstance(value, bool):
            selected = None if value is False else True
        elif not isinstance(selected := to_jsonable_python(value), dict):
            raise ResultError(
                self._name, f"a value of type {type(value).__qualname__!r}; return a bool or data", "event"
            )
        return ToolExecutionResult((), value=selected)

    def write_json(self, value: Any) -> ToolExecutionResult:
        """Convert a return value; see `write`."""
        return self.write(value)
