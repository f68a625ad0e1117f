"""AI services: interfaces whose methods are implemented by a chat model (LangChain4j's AiServices).

    class Assistant(Protocol):
        async def chat(self, message: str) -> str: ...

    assistant = ai_service(Assistant, chat_model=model, tools=[Calculator()])
    answer = await assistant.chat("What is the square root of 475695037565?")

Methods may be asynchronous or synchronous. A synchronous method runs in the portal's thread, or in the event loop of
the synchronous tool that calls it.

The service is an instance of the interface, so methods decorated with ``@tool`` can be used as tools of another
service, or published. Called as a tool, a method uses its caller's conversation, even without a `MemoryId` parameter.
Over MCP this is the authenticated caller or the session; over HTTP, a call without either belongs to no conversation.
"""

from __future__ import annotations

import functools
import inspect
import math
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from bridge import portal
from bridge.errors import DefinitionError, ToolError
from bridge.service.approval import ApprovalPolicy, InvocationSuspended
from bridge.service.chat_model import ChatRequestParameters
from bridge.service.engine import Engine
from bridge.service.events import Listeners
from bridge.service.guardrails.messages import Guardrails
from bridge.service.guardrails.outcomes import checked_guardrails
from bridge.service.interface import methods_of
from bridge.service.loop import NO_OWN_LIMITS, InvocationLimits, LoopSettings
from bridge.service.memory.chat_memory import ProvidedMemories
from bridge.service.token_stream import TokenStream
from bridge.service.tool_search import ToolSearch
from bridge.service.toolset import Toolset
from bridge.text import short_repr
from bridge.tools.checks import require_callable, require_type
from bridge.tools.context import InvocationContext
from bridge.tools.execution import LOCAL, ExecutionPolicy
from bridge.tools.schema.annotations import python_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import TypeForm

    from bridge.service.approval import Decision, SuspendedInvocation
    from bridge.service.chat_model import ChatModel, StreamingChatModel
    from bridge.service.events import Emit, InvocationListener, Result
    from bridge.service.guardrails.messages import InputGuardrail, OutputGuardrail
    from bridge.service.interface import ServiceMethod
    from bridge.service.loop import ChatRequestTransformer
    from bridge.service.memory.chat_memory import ChatMemory, ChatMemoryProvider
    from bridge.service.skills import ServiceSkills
    from bridge.skills.source import Skills
    from bridge.tools.tool import ProviderFunction, ToolProvider

T = TypeVar("T")

_ENGINE = "__bridge_engine__"
_CALLED_BY = "_bridge_called_by"
"""Name of the parameter that passes the caller's context to a method that is a tool."""


def ai_service(
    interface: TypeForm[T],
    *,
    chat_model: ChatModel | None = None,
    streaming_chat_model: StreamingChatModel | None = None,
    tools: object = (),
    tool_providers: Iterable[ToolProvider | ProviderFunction] = (),
    tool_search: ToolSearch | None = None,
    skills: Skills | None = None,
    memory: ChatMemory | None = None,
    memory_provider: ChatMemoryProvider | None = None,
    system_message: str | Callable[[Any], str | None] | None = None,
    parameters: ChatRequestParameters | None = None,
    chat_request_transformer: ChatRequestTransformer | None = None,
    policy: ExecutionPolicy = LOCAL,
    listeners: Iterable[InvocationListener] | InvocationListener = (),
    approval: ApprovalPolicy | None = None,
    input_guardrails: Iterable[InputGuardrail] | InputGuardrail = (),
    output_guardrails: Iterable[OutputGuardrail] | OutputGuardrail = (),
    compensate_on_tool_errors: bool = False,
    execute_tools_concurrently: bool | int | Executor = False,
    limits: InvocationLimits = NO_OWN_LIMITS,
) -> T:
    """Implement an interface with a chat model.

    Args:
        interface: A Protocol, or a class with abstract methods; see `bridge.service.interface` for parameters and
            return types.
        chat_model: Model for methods that return a complete answer.
        streaming_chat_model: Model for methods that return a `TokenStream`, and for all methods if it is the only
            model. Defaults to ``chat_model`` if that can stream.
        tools: Functions, objects with tools, Tools, ``{specification: executor}``, tool providers, or iterables of
            these; see `bridge.tools_from`. Later changes of a ToolBox apply.
        tool_providers: Provide further tools per invocation, or per model request: `ToolProvider` objects, or functions
            of the `ToolProviderRequest`, which return whatever ``tools`` takes, or None.
        tool_search: Lets the model search for tools instead of receiving all of them.
        skills: Skills, such as ``provider.skills`` of a `McpToolProvider`, or `bridge.skills.skills_in` of a folder.
            The system message lists them, and the model reads them with the tool ``read_skill``.
        memory: Conversation memory. A method with a `MemoryId` parameter uses one conversation per id, and none for
            None.
        memory_provider: Returns the memory for a memory id, in place of ``memory``. It is called once per id; the
            memories of the 10,000 most recently used ids are cached.
        system_message: System message for methods without their own: a template, or a function of the memory id.
        parameters: Default request parameters for the model; a method's own `ChatRequestParameters` take precedence.
        chat_request_transformer: Function of each request to the model and the context, synchronous or asynchronous,
            that returns the request to send. The memory is not changed (LangChain4j's chatRequestTransformer).
        policy: Limits, callbacks and error handling for tool calls. As with LangChain4j, the model, and so its
            provider, reads the text of all exceptions of tools; with ``ExecutionPolicy(reveal_errors=False)`` only that
            of `ToolError`.
        listeners: Receive the events of each invocation.
        approval: Policy for tool calls that require approval.
        input_guardrails: Check the user's messages, in order; see `bridge.service.guardrails.messages`.
        output_guardrails: Check the answers, in order.
        compensate_on_tool_errors: Undo the successful calls of `compensated` tools after a response in which a tool
            failed, tell the model, and go on (LangChain4j's compensateOnToolErrors). By default they are undone if the
            invocation fails.
        execute_tools_concurrently: Run the tools of one response concurrently; a number limits the concurrency. An
            executor of threads runs the functions that are not asynchronous, in place of the shared worker threads; it
            is not shut down.
        limits: Limits of each invocation.

    Returns:
        An instance of the interface.

    Raises:
        DefinitionError: The interface, the tools and the models are incompatible, or an argument is invalid.
        NameClashError: Two tools have the same name.
    """
    if not isinstance(interface, type):
        raise DefinitionError(f"{interface!r} is not an interface; give a Protocol or a class with abstract methods")
    if memory is not None and memory_provider is not None:
        raise DefinitionError("give memory or memory_provider, not both")
    require_type(policy, ExecutionPolicy, "policy", "an ExecutionPolicy")
    require_type(approval, ApprovalPolicy | None, "approval", "an ApprovalPolicy(approve=…), or None")
    require_type(limits, InvocationLimits, "limits", "InvocationLimits(…)")
    require_type(tool_search, ToolSearch | None, "tool_search", "a ToolSearch(), or None")
    template = system_message if isinstance(system_message, str) else None
    if template is None and system_message is not None:
        require_callable(system_message, 1, "system_message that is not text", "the memory id")
    guardrails = Guardrails(
        input=checked_guardrails(input_guardrails, "input_guardrails"),
        output=checked_guardrails(output_guardrails, "output_guardrails"),
        max_retries=limits.max_guardrail_retries,
    )
    methods = methods_of(interface, template, inspect.currentframe(), guardrails)
    chat_model, streaming_chat_model = _models(chat_model, streaming_chat_model, methods)
    combined_listeners = Listeners(listeners)
    toolset = Toolset(
        tools,
        tool_providers,
        methods.values(),
        approval=approval,
        search=tool_search,
        spill=policy.spill,
        skills=None if skills is None else _service_skills(skills),
    )
    engine = Engine(
        methods=methods,
        settings=LoopSettings(
            chat_model=chat_model,
            streaming_chat_model=streaming_chat_model,
            policy=replace(
                policy,
                before=(*policy.before, *combined_listeners.before_tool),
                after=(*policy.after, *combined_listeners.after_tool),
                spill=toolset.spill,
            ),
            listeners=combined_listeners,
            chat_request_transformer=chat_request_transformer,
            approval=approval,
            limits=limits,
            compensate_on_tool_errors=compensate_on_tool_errors,
            concurrent_tools=_concurrent(execute_tools_concurrently),
            executor=execute_tools_concurrently if isinstance(execute_tools_concurrently, Executor) else None,
        ),
        toolset=toolset,
        memory=memory,
        memory_provider=None if memory_provider is None else ProvidedMemories(memory_provider),
        system=system_message if callable(system_message) else None,
        parameters=ChatRequestParameters() if parameters is None else parameters,
    )
    engine.toolset.check_choice(engine.parameters.tool_choice)
    return _instance(interface, engine)


def _service_skills(skills: Skills) -> ServiceSkills:
    from bridge.service.skills import ServiceSkills  # noqa: PLC0415 - only with skills
    from bridge.skills.source import Skills as Source  # noqa: PLC0415 - as above

    require_type(skills, Source, "skills", 'the skills of a provider, or skills_in("folder")')
    return ServiceSkills(skills)


async def resume(service: object, state: SuspendedInvocation, decisions: Mapping[int, Decision] | None = None) -> Any:
    """Continue a suspended invocation; continued twice, one state runs its approved tools twice.

    Args:
        service: A service with the same interface, in this process or another one.
        state: The suspended invocation.
        decisions: Decisions on pending calls, by index in `SuspendedInvocation.pending`. The service's approval policy
            is asked about the others.

    Returns:
        The method's result.

    Raises:
        DefinitionError: The service has no such method.
        InvocationSuspended: Some calls are still undecided.
        BaseException: See the method.
    """
    engine: Engine | None = getattr(service, _ENGINE, None)
    if engine is None:
        raise DefinitionError(f"{service!r} is not an AI service; pass the return value of ai_service")
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


def _binder(signature: inspect.Signature) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that binds the arguments of a call to the parameters, including defaults."""
    parameters = signature.parameters
    is_positional = all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters.values())

    def bind(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        if is_positional and not keywords and len(arguments) == len(parameters):
            return dict(zip(parameters, arguments, strict=True))  # six times as fast as the signature's own binding
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        return bound.arguments

    return bind


def _implementation(function: Callable[..., Any], method: ServiceMethod, engine: Engine) -> Callable[..., Any]:
    values_of = _binder(method.signature)

    async def run(values: Mapping[str, Any], emit: Emit | None = None) -> Result[Any]:
        return await engine.run(engine.call(method, values), emit)

    async def invoke(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
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
        return stream(*arguments, **keywords) if method.streams else await invoke(arguments, keywords)

    def synchronous(*arguments: Any, **keywords: Any) -> Any:
        return portal.call_blocking(invoke, arguments, keywords)

    implementation: Any = asynchronous if method.is_async else stream if method.streams else synchronous
    implementation = functools.wraps(function)(implementation)
    vars(implementation).pop("__isabstractmethod__", None)  # the method is implemented now
    if method.is_tool and method.context is None:
        implementation.__signature__ = _with_caller(python_signature(function))
    return implementation  # type: ignore[no-any-return]  # functools.wraps is untyped for Any


def _with_caller(signature: inspect.Signature) -> inspect.Signature:
    """Add a parameter for the caller's context, whose conversation the method uses."""
    caller = inspect.Parameter(
        _CALLED_BY, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=InvocationContext | None
    )
    return signature.replace(parameters=[*signature.parameters.values(), caller])


def _returned(result: Result[Any], method: ServiceMethod) -> Any:
    return result if method.returns_result else result.content


def _models(
    chat_model: ChatModel | None, streaming_chat_model: StreamingChatModel | None, methods: Mapping[str, ServiceMethod]
) -> tuple[ChatModel | None, StreamingChatModel | None]:
    """Return both models; one of them may implement both protocols."""
    _require_model(chat_model, "chat_model", "chat", "stream")
    _require_model(streaming_chat_model, "streaming_chat_model", "stream")
    if streaming_chat_model is None and hasattr(chat_model, "stream"):
        streaming_chat_model = chat_model  # type: ignore[assignment]  # implements both protocols
    if not hasattr(chat_model, "chat"):
        chat_model = None
    if chat_model is None and hasattr(streaming_chat_model, "chat"):
        chat_model = streaming_chat_model  # type: ignore[assignment]  # implements both protocols
    if chat_model is None and streaming_chat_model is None:
        raise DefinitionError("a service needs a model; give chat_model or streaming_chat_model")
    for method in methods.values():
        if method.streams and streaming_chat_model is None:
            raise DefinitionError(f"{method.source} returns TokenStream; give a streaming_chat_model")
    return chat_model, streaming_chat_model


def _require_model(model: object, what: str, *methods: str) -> None:
    """Raise unless an object is a model with at least one of the methods, or None."""
    if isinstance(model, str):
        raise DefinitionError(
            f'{what} must be a chat model, not {model!r}; give one, such as chat_model_named("openai:gpt-5.1")'
        )
    if model is not None and (isinstance(model, type) or not any(hasattr(model, method) for method in methods)):
        raise DefinitionError(
            f"{what} must be a chat model with the method {' or '.join(map(repr, methods))}, not {short_repr(model)}"
        )


def _concurrent(value: Any) -> float:
    if isinstance(value, Executor):
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import

        if isinstance(value, ProcessPoolExecutor):
            raise DefinitionError("tools cannot run in processes; give execute_tools_concurrently a ThreadPoolExecutor")
        return math.inf
    if value is True:
        return math.inf
    if value is not False and (not isinstance(value, int) or value < 1):
        raise DefinitionError(
            f"execute_tools_concurrently must be True, False, at least 1 or an Executor, not {value!r}"
        )
    return int(value) or 1
