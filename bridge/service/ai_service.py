"""AiService: an interface whose methods a chat model implements (LangChain4j's AiServices).

    class Assistant(Protocol):
        async def chat(self, message: str) -> str: ...

    assistant = ai_service(Assistant, chat_model=model, tools=[Calculator()])
    answer = await assistant.chat("What is the square root of 475695037565?")

Methods are asynchronous or plain. A plain one runs in the portal's thread, or, called by a synchronous tool, in the
event loop that runs the tool. What is built is an instance of the interface, so its methods that are tools (``@tool``)
can be tools of another service, or be published. Called as a tool, a method belongs to the conversation of its caller,
with or without a `MemoryId` parameter: over MCP that is the authenticated caller or the session, and over HTTP a caller
without either has no conversation.
"""

from __future__ import annotations

import functools
import inspect
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from bridge import portal
from bridge.errors import DefinitionError, ToolError
from bridge.service.approval import InvocationSuspended
from bridge.service.chat_model import ChatRequestParameters
from bridge.service.engine import Engine
from bridge.service.events import Listeners
from bridge.service.interface import methods_of
from bridge.service.loop import DEFAULT_MAX_TOOL_CALLS_PER_RESPONSE, DEFAULT_MODEL_TIMEOUT_SECONDS, LoopSettings
from bridge.service.memory import ProvidedMemories
from bridge.service.token_stream import TokenStream
from bridge.service.toolset import Toolset
from bridge.tools.context import InvocationContext
from bridge.tools.execution import LOCAL
from bridge.tools.tool import ReturnBehavior
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import TypeForm

    from bridge.service.approval import ApprovalPolicy, Decision, SuspendedInvocation
    from bridge.service.chat_model import ChatModel, StreamingChatModel
    from bridge.service.events import Emit, InvocationListener, Result
    from bridge.service.interface import ServiceMethod
    from bridge.service.memory import ChatMemory, ChatMemoryProvider
    from bridge.service.toolset import ToolSearch
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.tool import Tool, ToolProvider

T = TypeVar("T")

_ENGINE = "__bridge_engine__"
_CALLED_BY = "_bridge_called_by"
"""The parameter by which a method that is a tool receives the context of its caller."""


def ai_service(
    interface: TypeForm[T],
    *,
    chat_model: ChatModel | None = None,
    streaming_chat_model: StreamingChatModel | None = None,
    tools: object = (),
    tool_providers: Iterable[ToolProvider] = (),
    tool_search: ToolSearch | None = None,
    memory: ChatMemory | None = None,
    memory_provider: ChatMemoryProvider | None = None,
    system_message: str | Callable[[Any], str | None] | None = None,
    parameters: ChatRequestParameters | None = None,
    policy: ExecutionPolicy = LOCAL,
    reveal_errors: bool = True,
    listeners: Iterable[InvocationListener] = (),
    approval: ApprovalPolicy | None = None,
    execute_tools_concurrently: bool | int = False,
    max_tool_round_trips: int = 100,
    max_tool_calls_per_response: int | None = DEFAULT_MAX_TOOL_CALLS_PER_RESPONSE,
    timeout_seconds: float | None = None,
    model_timeout_seconds: float | None = DEFAULT_MODEL_TIMEOUT_SECONDS,
) -> T:
    """Let a chat model implement an interface.

    Args:
        interface: A Protocol, or a class with abstract methods; see `bridge.service.interface` for what its methods may
            take and return.
        chat_model: Answers the methods that return everything at once.
        streaming_chat_model: Answers those that return a `TokenStream`, and the others where it is the only one. A chat
            model that can stream need not be given twice.
        tools: Functions, objects with tools, Tools, or iterables of these. A ToolBox is followed as it changes.
        tool_providers: Give further tools for an invocation, or for each of its steps.
        tool_search: Let the model search for tools, instead of showing it all.
        memory: Keeps the conversations; a method with a `MemoryId` parameter has one for each id, and none for None.
        memory_provider: Gives the memory of a conversation by its id, instead of ``memory``. It is asked once for each
            id, and the memories of the last 10,000 ids are kept.
        system_message: For methods that have none: a template, or what gives the text by the memory id.
        parameters: What is wanted of the model; a method's own `ChatRequestParameters` come before.
        policy: How failures of tools are treated.
        reveal_errors: Send the text of any exception of a tool to the model, and so to the model's provider, as
            LangChain4j does. With False only texts for the model are sent, those of a `ToolError`: of any other
            exception the model reads that the tool failed, and the exception is logged.
        listeners: Are told what happens.
        approval: Which calls of tools need approval, and who gives it.
        execute_tools_concurrently: Run the tools of one response at the same time; a number is the limit.
        max_tool_round_trips: How often in one invocation the model may have tools run before it answers.
        max_tool_calls_per_response: How many calls of tools one response may hold; a response with more ends the
            invocation with a `ToolLimitError`. None for any number.
        timeout_seconds: How long an invocation may take.
        model_timeout_seconds: How long the model may say nothing: until its response, or a stream's next piece.

    Returns:
        An instance of the interface.

    Raises:
        DefinitionError: The interface, the tools and the models do not go together.
        NameClashError: Two tools have one name.
    """
    if not isinstance(interface, type):
        raise DefinitionError(f"{interface!r} is no interface; give a Protocol or a class with abstract methods")
    if memory is not None and memory_provider is not None:
        raise DefinitionError("give memory or memory_provider, not both")
    template = system_message if isinstance(system_message, str) else None
    methods = methods_of(interface, template, inspect.currentframe())
    chat_model, streaming_chat_model = _models(chat_model, streaming_chat_model, methods)
    heard = Listeners(listeners)
    engine = Engine(
        methods=methods,
        settings=LoopSettings(
            chat_model=chat_model,
            streaming_chat_model=streaming_chat_model,
            policy=replace(
                policy,
                before=policy.before + heard.before_tool,
                after=policy.after + heard.after_tool,
                reveal_errors=reveal_errors and policy.reveal_errors,
            ),
            listeners=heard,
            approval=approval,
            max_tool_round_trips=max_tool_round_trips,
            max_tool_calls_per_response=max_tool_calls_per_response,
            concurrent_tools=_concurrent(execute_tools_concurrently),
            model_timeout_seconds=model_timeout_seconds,
        ),
        toolset=Toolset(
            tools if isinstance(tools, ToolBox) else _toolbox(tools),
            tuple(tool_providers),
            approval=approval,
            search=tool_search,
            admit=functools.partial(_refuse_immediate, methods.values()),
        ),
        memory=memory,
        memory_provider=None if memory_provider is None else ProvidedMemories(memory_provider),
        system=system_message if callable(system_message) else None,
        parameters=parameters or ChatRequestParameters(),
        timeout_seconds=timeout_seconds,
    )
    return _instance(interface, engine)


async def resume(service: object, state: SuspendedInvocation, decisions: Mapping[int, Decision] | None = None) -> Any:
    """Go on with a suspended invocation.

    Args:
        service: A service of the same interface, in this process or another than the one that suspended it.
        state: The invocation.
        decisions: What was decided about its pending calls, by their place in `SuspendedInvocation.pending`. About the
            others the service's approval is asked again.

    Returns:
        What the method returns.

    Raises:
        DefinitionError: The service has no such method.
        InvocationSuspended: There are calls about which nothing is decided yet.
        BaseException: As the method.
    """
    engine: Engine | None = getattr(service, _ENGINE, None)
    if engine is None:
        raise DefinitionError(f"{service!r} is no AI service; give what ai_service returned")
    call = engine.resumption(state, decisions or {})
    if call.method.streams:
        return TokenStream(functools.partial(engine.run, call))
    return _returned(await engine.run(call), call.method)


def _instance(interface: type[T], engine: Engine) -> T:
    namespace: dict[str, Any] = {
        name: _implementation(getattr(interface, name), method, engine) for name, method in engine.methods.items()
    }
    namespace[_ENGINE] = engine
    namespace["__module__"] = interface.__module__
    make: Any = type(interface)
    try:
        instance: T = make(interface.__name__, (interface,), namespace)()
    except TypeError as error:
        raise DefinitionError(f"{interface!r} cannot be implemented: {error}") from error
    return instance


def _implementation(function: Callable[..., Any], method: ServiceMethod, engine: Engine) -> Callable[..., Any]:
    bind = method.signature.bind

    def values_of(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        bound = bind(*arguments, **keywords)
        bound.apply_defaults()
        return bound.arguments

    async def run(values: Mapping[str, Any], emit: Emit | None = None) -> Result[Any]:
        return await engine.run(engine.call(method, values), emit)

    async def answer(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        called_by = keywords.pop(_CALLED_BY, None)
        try:
            return _returned(await engine.run(engine.call(method, values_of(arguments, keywords), called_by)), method)
        except InvocationSuspended as suspended:
            if not method.is_tool:
                raise
            raise ToolError(f"{suspended}, which cannot be given here") from suspended

    def stream(*arguments: Any, **keywords: Any) -> TokenStream:
        return TokenStream(functools.partial(run, values_of(arguments, keywords)))

    async def asynchronous(*arguments: Any, **keywords: Any) -> Any:
        return stream(*arguments, **keywords) if method.streams else await answer(arguments, keywords)

    def synchronous(*arguments: Any, **keywords: Any) -> Any:
        return portal.run(answer, arguments, keywords)

    made: Any = asynchronous if method.is_async else stream if method.streams else synchronous
    made = functools.wraps(function)(made)
    vars(made).pop("__isabstractmethod__", None)  # it is implemented now
    if method.is_tool and method.context is None:
        made.__signature__ = _with_caller(inspect.signature(function))
    return made  # type: ignore[no-any-return]  # what wraps a function is one


def _with_caller(signature: inspect.Signature) -> inspect.Signature:
    """The signature of a tool that also receives the context of its caller, whose conversation it belongs to."""
    caller = inspect.Parameter(
        _CALLED_BY, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=InvocationContext | None
    )
    return signature.replace(parameters=[*signature.parameters.values(), caller])


def _returned(result: Result[Any], method: ServiceMethod) -> Any:
    return result if method.returns_result else result.content


def _models(
    chat_model: ChatModel | None, streaming_chat_model: StreamingChatModel | None, methods: Mapping[str, ServiceMethod]
) -> tuple[ChatModel | None, StreamingChatModel | None]:
    """The two models, one of which may be both."""
    if streaming_chat_model is None and hasattr(chat_model, "stream"):
        streaming_chat_model = chat_model  # type: ignore[assignment]  # it is both
    if chat_model is None and hasattr(streaming_chat_model, "chat"):
        chat_model = streaming_chat_model  # type: ignore[assignment]  # it is both
    if chat_model is None and streaming_chat_model is None:
        raise DefinitionError("a service needs a model; give chat_model or streaming_chat_model")
    for method in methods.values():
        if method.streams and streaming_chat_model is None:
            raise DefinitionError(f"{method.source} returns TokenStream; give a streaming_chat_model")
    return chat_model, streaming_chat_model


def _toolbox(tools: object) -> ToolBox:
    if isinstance(tools, list | tuple | set | frozenset):
        return ToolBox(*tools)
    return ToolBox(tools)


def _concurrent(value: bool | int) -> float:
    if value is True:
        return math.inf
    if value is not False and value < 1:
        raise DefinitionError(f"execute_tools_concurrently must be True, False or at least 1, not {value!r}")
    return int(value) or 1


def _refuse_immediate(methods: Iterable[ServiceMethod], tools: Iterable[Tool]) -> None:
    """Refuse tools whose results are the answer, where a method could not return it."""
    for tool in tools:
        if tool.return_behavior is ReturnBehavior.TO_LLM:
            continue
        for method in methods:
            if not method.holds_immediate:
                raise DefinitionError(
                    f"the result of the tool {tool.name!r} from {tool.source} may be the answer "
                    f"({tool.return_behavior.name}), which {method.source} cannot return; let it return Result[…] or "
                    "TokenStream"
                )
