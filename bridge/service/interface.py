"""Interface: the methods of a service as its author declared them, read once when the service is built.

A parameter means, by its annotation or type:

    Annotated[T, MemoryId]      which conversation the call belongs to
    InvocationParameters        free data for tools, hidden from the model
    InvocationContext           the caller's own context, which the invocation continues
    ChatRequestParameters       what this call wants of the model
    Image, Audio, File, …       content that the model gets beside the text
    anything else               the user's message, or a value for a template

Every parameter has a use, and every method says something to the model; all else is refused when the service is built.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from bridge.errors import DefinitionError
from bridge.service.chat_model import ChatRequestParameters
from bridge.service.events import Result
from bridge.service.messages import UserMessage
from bridge.service.structured import reply_reader_of
from bridge.service.templates import IT, PromptTemplate, format_value, system_template_of, user_template_of
from bridge.service.token_stream import TokenStream
from bridge.tools.content import Block, Text
from bridge.tools.context import InvocationContext, InvocationParameters
from bridge.tools.function import settings_of
from bridge.tools.results import is_content_type
from bridge.tools.schema.annotations import resolve_annotation
from bridge.tools.schema.parameters import P, ToolMemoryId, injected_attribute

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from bridge.service.structured import ReplyReader
    from bridge.tools.content import Content

MemoryId = ToolMemoryId
"""Marks the parameter that says which conversation a call belongs to (LangChain4j's @MemoryId).

It is the mark of the tools: a method that is itself a tool gets the conversation of whoever calls it.
"""

_OURS = {
    "MemoryId": MemoryId,
    **{each.__name__: each for each in (InvocationContext, InvocationParameters, P, ToolMemoryId)},
    **{each.__name__: each for each in (ChatRequestParameters, Result, TokenStream)},
}
"""What an annotation may name although it was imported for type checking only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMethod:
    """One method of an interface: what it takes, says and returns."""

    name: str
    source: str
    """The method, for messages."""
    is_async: bool
    is_tool: bool
    """It is called by other programs, or by other services, none of which can wait for an approval."""
    signature: inspect.Signature
    memory_id: str | None
    """The name of the parameter that says which conversation; likewise those that follow."""
    parameters: str | None
    context: str | None
    request_parameters: str | None
    content: tuple[str, ...]
    """The parameters that are content beside the text."""
    it: str | None
    """The parameter that nothing else uses."""
    user_template: PromptTemplate | None
    system_template: PromptTemplate | None
    reader: ReplyReader | None
    """Reads the model's replies; None where the method returns text."""
    returns_result: bool
    streams: bool

    @property
    def holds_immediate(self) -> bool:
        """A tool's result can be the answer."""
        return self.returns_result or self.streams

    def user_message(self, values: Mapping[str, Any]) -> UserMessage:
        """What the method says to the model.

        Args:
            values: The arguments of the call, by name.
        """
        content: list[Content] = []
        if self.user_template is not None:
            content.append(Text(self.user_template.render(self._named(values))))
        elif self.it is not None:
            said = values[self.it]
            if isinstance(said, UserMessage):
                return said
            content += _blocks_of(said)
        for name in self.content:
            content += _blocks_of(values[name])
        return UserMessage(tuple(content))

    def system_text(self, values: Mapping[str, Any]) -> str | None:
        """How the model is told to behave; None where the method does not say."""
        return None if self.system_template is None else self.system_template.render(self._named(values))

    def _named(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values if self.it is None else {IT: values[self.it], **values}


def methods_of(interface: type, system_message: str | None, frame: FrameType | None) -> dict[str, ServiceMethod]:
    """Read an interface.

    Args:
        interface: A Protocol, or a class with abstract methods or with methods that have templates.
        system_message: For the methods that have no system message of their own.
        frame: A frame that the definition may have called, for annotations that only its scope knows.

    Raises:
        DefinitionError: There is no such method, or one that a model cannot implement.
    """
    is_protocol = getattr(interface, "_is_protocol", False)
    found = {
        name: _method(getattr(interface, name), f"{interface.__name__}.{name}", system_message, frame)
        for name in dir(interface)
        if _is_declared(interface, name, is_protocol=is_protocol)
    }
    if not found:
        raise DefinitionError(
            f"{interface!r} declares no method for a model; declare abstract methods, or make it a Protocol"
        )
    return found


def _is_declared(interface: type, name: str, *, is_protocol: bool) -> bool:
    function = inspect.getattr_static(interface, name)
    if name.startswith("__") or not inspect.isfunction(function):
        return False
    if getattr(function, "__isabstractmethod__", False) or user_template_of(function) or system_template_of(function):
        return True
    return is_protocol and not name.startswith("_")


def _method(
    function: Callable[..., Any], source: str, system_message: str | None, frame: FrameType | None
) -> ServiceMethod:
    signature = inspect.signature(function)
    resolve = _resolver(function, source, frame)
    kinds = {name: resolve(parameter.annotation) for name, parameter in list(signature.parameters.items())[1:]}
    roles = _roles(kinds)
    others = [name for name in kinds if name not in roles.values()]
    user = _template(user_template_of(function), others, source)
    system = _template(system_template_of(function) or system_message, others, source)
    used = (user.used if user else set()) | (system.used if system else set())
    content = tuple(name for name in others if is_content_type(kinds[name]) and name not in used)
    it = _it([name for name in others if name not in content], user, used, source)
    if user is None and it is None and not content:
        raise DefinitionError(f"{source} says nothing to the model; give it a parameter, or @user_message")
    returned = resolve(signature.return_annotation)
    inner = _inner(returned)
    method = ServiceMethod(
        name=source.rpartition(".")[2],
        source=source,
        is_async=inspect.iscoroutinefunction(function),
        is_tool=settings_of(function) is not None,
        signature=signature,
        **roles,
        content=content,
        it=it,
        user_template=user,
        system_template=system,
        reader=None if inner in (str, Any) else reply_reader_of(inner, source),
        returns_result=_is_result(returned),
        streams=returned is TokenStream,
    )
    if method.is_tool and method.holds_immediate:
        raise DefinitionError(f"{source} is a tool and returns {returned!r}; let a tool return str or data")
    return method


def _roles(kinds: Mapping[str, Any]) -> dict[str, str | None]:
    roles: dict[str, str | None] = dict.fromkeys(("memory_id", "parameters", "context", "request_parameters"))
    for name, kind in kinds.items():
        role = injected_attribute(kind)
        if role is not None:
            roles["context" if role == "itself" else role] = name
        elif ChatRequestParameters in (kind, *get_args(kind)):
            roles["request_parameters"] = name
    return roles


def _it(plain: list[str], user: PromptTemplate | None, used: set[str], source: str) -> str | None:
    """The parameter that is the user's message, or that a template calls ``it``."""
    unused = [name for name in plain if name not in used]
    wants_it = IT in used and IT not in plain
    if len(unused) > 1 or (unused and user is not None and not wants_it):
        names = " and ".join(map(repr, unused))
        raise DefinitionError(f'{source} does not say what {names} is for; name each in @user_message("… {{name}} …")')
    if unused:
        return unused[0]
    if len(plain) == 1 and (wants_it or user is None):
        return plain[0]
    if wants_it:
        raise DefinitionError(f"a template of {source} names 'it', and no parameter is left for it")
    return None


def _template(text: str | None, names: list[str], source: str) -> PromptTemplate | None:
    return None if text is None else PromptTemplate(text, names, source)


def _inner(returned: Any) -> Any:
    if returned is TokenStream or returned is Result:
        return str
    return (get_args(returned) or (str,))[0] if _is_result(returned) else returned


def _is_result(returned: Any) -> bool:
    return returned is Result or get_origin(returned) is Result


def _blocks_of(value: Any) -> list[Content]:
    if isinstance(value, Block):
        block: Content = value  # type: ignore[assignment]  # the kinds of content are the kinds of block
        return [block]
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        items = list(value)
        if items and all(isinstance(item, str | Block) for item in items) and any(isinstance(i, Block) for i in items):
            return [block for item in items for block in _blocks_of(item)]
    return [] if value is None else [Text(format_value(value))]


def _resolver(function: Any, source: str, frame: FrameType | None) -> Callable[[Any], Any]:
    known = {**_OURS, **function.__globals__}
    nearby = _scope_around(function, frame)

    return lambda annotation: resolve_annotation(annotation, known, nearby, f"an annotation of {source}")


def _scope_around(function: Any, frame: FrameType | None) -> dict[str, Any]:
    """The names of the functions that the interface is defined in, as far as they are still running."""
    around = set(function.__qualname__.split(".")[:-2]) - {"<locals>"}
    found: dict[str, Any] = {}
    while around and frame is not None:
        if frame.f_code.co_name in around:
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found
