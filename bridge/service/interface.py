"""Inspection of a service's interface, once when the service is built.

A parameter is used according to its annotation:

    Annotated[T, MemoryId]      id of the conversation
    InvocationParameters        arbitrary data for tools, hidden from the model
    InvocationContext           the caller's context, which the invocation continues
    ChatRequestParameters       request parameters for the model
    Image, Audio, File, …       content sent with the text
    anything else               the user's message, or a value for a template; a list of messages, such as those of a
                                prompt, is a conversation that ends with the user's message

A parameter without a use, or a method without a message for the model, is an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from bridge.errors import DefinitionError
from bridge.prompts.prompt import PromptMessage
from bridge.service.chat_model import ChatRequestParameters
from bridge.service.events import Result
from bridge.service.messages import AiMessage, UserMessage, chat_messages
from bridge.service.structured import reply_reader_of
from bridge.service.templates import IT, PromptTemplate, format_value, system_template_of, user_template_of
from bridge.service.token_stream import TokenStream
from bridge.tools.caller import InvocationParameters
from bridge.tools.content import Block, Text
from bridge.tools.context import InvocationContext
from bridge.tools.function import settings_of
from bridge.tools.results import is_content_type
from bridge.tools.schema.annotations import python_signature, resolve_annotation
from bridge.tools.schema.parameters import P, ToolMemoryId, injected_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from bridge.service.guardrails.messages import Guardrails
    from bridge.service.messages import ChatMessage
    from bridge.service.structured import ReplyReader
    from bridge.tools.content import Content

MemoryId = ToolMemoryId
"""Marks the parameter with the id of the conversation (LangChain4j's @MemoryId).

The same mark as for tools: a method that is itself a tool receives the conversation of its caller.
"""

_OURS = {
    "MemoryId": MemoryId,
    **{mark.__name__: mark for mark in (InvocationContext, InvocationParameters, P, ToolMemoryId)},
    **{mark.__name__: mark for mark in (ChatRequestParameters, Result, TokenStream)},
}
"""Names that annotations may use even if they were imported under TYPE_CHECKING only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMethod:
    """One method of an interface."""

    name: str
    source: str
    """Qualified name of the method, for messages."""
    is_async: bool
    is_tool: bool
    """True for a method decorated with ``@tool``; its callers cannot wait for an approval."""
    signature: inspect.Signature
    memory_id: str | None
    """Name of the parameter with the memory id; the attributes below also name parameters."""
    parameters: str | None
    context: str | None
    request_parameters: str | None
    content: tuple[str, ...]
    """Parameters that are sent as content besides the text."""
    it: str | None
    """The parameter without another use; templates call it ``it``."""
    user_template: PromptTemplate | None
    system_template: PromptTemplate | None
    reader: ReplyReader | None
    """Parses replies; None if the method returns text."""
    returns_result: bool
    streams: bool
    guardrails: Guardrails
    """Guardrails of the service and of the method."""

    @property
    def holds_immediate(self) -> bool:
        """True if the return type can hold a tool's result as the answer."""
        return self.returns_result or self.streams

    def read(self, text: str) -> Any:
        """Parse a reply into the return type, or raise `ReplyMismatchError`."""
        return text if self.reader is None else self.reader.read(text)

    def messages(self, values: Mapping[str, Any]) -> tuple[tuple[ChatMessage, ...], UserMessage]:
        """Return the messages before the user's, if the argument is a list of messages, and the user's message.

        Raises:
            DefinitionError: The last message of a list is not a user's.
        """
        content: list[Content] = []
        if self.user_template is not None:
            content.append(Text(self.user_template.render(self._named(values))))
        elif self.it is not None:
            value = values[self.it]
            if isinstance(value, UserMessage):
                return (), value
            if conversation := _conversation_in(value):
                *earlier, last = conversation
                if not isinstance(last, UserMessage):
                    raise DefinitionError(f"the last message for {self.source} must be a user's, not {last!r}")
                return tuple(earlier), last
            content += _blocks_of(value)
        for name in self.content:
            content += _blocks_of(values[name])
        return (), UserMessage(tuple(content))

    def system_text(self, values: Mapping[str, Any]) -> str | None:
        """Return the system message; None if the method has none."""
        return None if self.system_template is None else self.system_template.render(self._named(values))

    def _named(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values if self.it is None else {IT: values[self.it], **values}


def methods_of(
    interface: type, system_message: str | None, frame: FrameType | None, guardrails: Guardrails
) -> dict[str, ServiceMethod]:
    """Inspect an interface.

    Args:
        interface: A Protocol, or a class with abstract methods or methods with templates.
        system_message: Template for methods without their own system message.
        frame: A frame called by the interface's definition, to resolve annotations with local names.
        guardrails: Guardrails of the service.

    Raises:
        DefinitionError: There are no such methods, or one cannot be implemented by a model.
    """
    is_protocol = getattr(interface, "_is_protocol", False)
    methods = {
        name: _method(getattr(interface, name), f"{interface.__name__}.{name}", system_message, frame, guardrails)
        for name in dir(interface)
        if _is_declared(interface, name, is_protocol=is_protocol)
    }
    if not methods:
        raise DefinitionError(
            f"{interface!r} declares no method for a model; declare abstract methods, or make it a Protocol"
        )
    return methods


def _is_declared(interface: type, name: str, *, is_protocol: bool) -> bool:
    function = inspect.getattr_static(interface, name)
    if name.startswith("__") or not inspect.isfunction(function):
        return False
    if getattr(function, "__isabstractmethod__", False) or user_template_of(function) or system_template_of(function):
        return True
    return is_protocol and not name.startswith("_")


def _method(
    function: Callable[..., Any],
    source: str,
    system_message: str | None,
    frame: FrameType | None,
    guardrails: Guardrails,
) -> ServiceMethod:
    signature = python_signature(function)
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
        raise DefinitionError(f"{source} sends nothing to the model; give it a parameter, or @user_message")
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
        guardrails=guardrails.of(function),
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
    """Return the parameter that is the user's message, or that a template calls ``it``."""
    unused = [name for name in plain if name not in used]
    uses_it = IT in used and IT not in plain
    if len(unused) > 1 or (unused and user is not None and not uses_it):
        names = " and ".join(map(repr, unused))
        raise DefinitionError(f'{source} has no use for {names}; name each in @user_message("… {{name}} …")')
    if unused:
        return unused[0]
    if len(plain) == 1 and (uses_it or user is None):
        return plain[0]
    if uses_it:
        raise DefinitionError(f"a template of {source} uses 'it', but no parameter is left for it")
    return None


def _template(text: str | None, names: list[str], source: str) -> PromptTemplate | None:
    return None if text is None else PromptTemplate(text, names, source)


def _inner(returned: Any) -> Any:
    if returned is TokenStream or returned is Result:
        return str
    return (get_args(returned) or (str,))[0] if _is_result(returned) else returned


def _is_result(returned: Any) -> bool:
    return returned is Result or get_origin(returned) is Result


def _conversation_in(value: Any) -> Sequence[ChatMessage]:
    """Return the messages of a list of them, as chat messages; empty for any other value."""
    if not isinstance(value, list | tuple):
        return ()
    if all(isinstance(each, PromptMessage) for each in value):
        return chat_messages(value)
    return value if all(isinstance(each, UserMessage | AiMessage) for each in value) else ()


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
    module_names = {**_OURS, **function.__globals__}
    local_names = _enclosing_scope(function, frame)

    return lambda annotation: resolve_annotation(annotation, module_names, local_names, f"an annotation of {source}")


def _enclosing_scope(function: Any, frame: FrameType | None) -> dict[str, Any]:
    """Return the names of the enclosing functions that are still running."""
    enclosing = set(function.__qualname__.split(".")[:-2]) - {"<locals>"}
    names: dict[str, Any] = {}
    while enclosing and frame is not None:
        if frame.f_code.co_name in enclosing:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names
