"""A wrong argument is refused at once, with a remedy; nothing that is accepted fails later."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bridge import (
    AnthropicChatModel,
    ApprovalPolicy,
    BedrockChatModel,
    ChatMemory,
    ChatRequest,
    DefinitionError,
    ExecutionPolicy,
    InvocationListener,
    InvocationSuspended,
    OpenAiChatModel,
    Tool,
    ToolSearch,
    UserMessage,
    ai_service,
    message_window,
    resume,
    tool,
    tools_from,
)
from bridge.middleware import cached, circuit_broken, rate_limited, retried
from bridge.service import (
    ChatRequestParameters,
    Decision,
    ResponseFormat,
    ToolChoice,
    ToolChoiceMode,
    for_tools,
    token_window,
)
from bridge.service.loop import InvocationLimits
from bridge.testing import ScriptedChatModel
from tests.service.fakes import Assistant, FakeModel, assistant, call, calls

if TYPE_CHECKING:
    from collections.abc import Callable


@tool
async def add(a: int, b: int) -> int:
    return a + b


class Listener(InvocationListener):
    def before_tool(self, request: Any) -> None:  # type: ignore[override]  # the mistake
        pass


MODEL = FakeModel()
OF_A_SERVICE: list[tuple[dict[str, Any], str]] = [
    ({"chat_model": "gpt-5"}, """chat_model must be a chat model, not 'gpt-5'; give one, such as chat_model_named("""),
    ({"chat_model": FakeModel}, "chat_model must be a chat model with the method 'chat' or 'stream', not <class"),
    ({"chat_model": 3}, "chat_model must be a chat model with the method 'chat' or 'stream', not 3"),
    ({"chat_model": None}, "a service needs a model; give chat_model or streaming_chat_model"),
    ({"streaming_chat_model": "openai:gpt-5"}, "streaming_chat_model must be a chat model, not 'openai:gpt-5'"),
    ({"streaming_chat_model": object()}, "streaming_chat_model must be a chat model with the method 'stream'"),
    ({"tools": None}, "there are no tools in None"),
    ({"tools": [3]}, "there are no tools in 3"),
    ({"tool_providers": None}, "tool_providers must be a list, each item a ToolProvider, not None"),
    ({"tool_providers": [3]}, "an item of tool_providers without provide_tools must be a function of the ToolProvider"),
    ({"tool_providers": [lambda: None]}, "is called with 1 argument, the ToolProviderRequest"),
    ({"tool_search": True}, "tool_search must be a ToolSearch(), or None, not True"),
    ({"tool_search": ToolSearch}, "tool_search must be a ToolSearch(), or None, not <class"),
    ({"memory": True}, "memory must be a ChatMemory, such as ChatMemory(), or None, not True"),
    ({"memory": ChatMemory}, "memory must be a ChatMemory, such as ChatMemory(), or None, not <class"),
    ({"memory_provider": ChatMemory()}, "memory_provider must be a function of the memory id, not <"),
    ({"memory_provider": lambda: None}, "memory_provider is called with 1 argument, the memory id"),
    ({"system_message": 3}, "system_message that is not text must be a function of the memory id, not 3"),
    ({"system_message": lambda: "x"}, "system_message that is not text is called with 1 argument, the memory id"),
    ({"parameters": {"temperature": 0}}, "parameters must be ChatRequestParameters, or None, not {'temperature': 0}"),
    ({"parameters": {}}, "parameters must be ChatRequestParameters, or None, not {}"),
    ({"chat_request_transformer": lambda request: request}, "chat_request_transformer is called with 2 arguments"),
    ({"chat_request_transformer": "x"}, "chat_request_transformer must be a function of the request and the context"),
    ({"policy": None}, "policy must be an ExecutionPolicy, not None"),
    ({"listeners": None}, "listeners must be a list, each item an InvocationListener, not None"),
    ({"listeners": [print]}, "an item of listeners must be an instance of an InvocationListener, not <built-in"),
    ({"listeners": Listener}, "an item of listeners must be an instance of an InvocationListener, not <class"),
    ({"listeners": Listener()}, "Listener.before_tool is called with 2 arguments, see the base class"),
    ({"approval": lambda *_: True}, "approval must be an ApprovalPolicy(approve=…), or None, not <function"),
    (
        {"execute_tools_concurrently": None},
        "execute_tools_concurrently must be True, False, at least 1 or an Executor, not None",
    ),
    (
        {"execute_tools_concurrently": "yes"},
        "execute_tools_concurrently must be True, False, at least 1 or an Executor, not 'yes'",
    ),
    (
        {"execute_tools_concurrently": -1},
        "execute_tools_concurrently must be True, False, at least 1 or an Executor, not -1",
    ),
    ({"limits": 60}, "limits must be InvocationLimits(…), not 60"),
    (
        {"tools": [add], "parameters": ChatRequestParameters(tool_choice=ToolChoice.of("ad"))},
        "parameters choose a tool that the service does not have: there is no tool named 'ad'; did you mean 'add'?",
    ),
]


@pytest.mark.parametrize(
    ("options", "problem"), OF_A_SERVICE, ids=lambda value: None if isinstance(value, dict) else ""
)
def test_a_service_refuses_wrong_arguments(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        ai_service(Assistant, **{"chat_model": MODEL, **options})
    assert problem in str(caught.value)


def made(make: Callable[..., object], *values: Any, **options: Any) -> Callable[[], object]:
    return lambda: make(*values, **options)


(PLAIN,) = tools_from(add)
SPECIFICATION, EXECUTOR = PLAIN.specification, PLAIN.executor
HELLO = (UserMessage.of("Hello"),)
OF_OBJECTS: list[tuple[Callable[[], object], str]] = [
    *(
        (made(InvocationLimits, **{limit: value}), f"{limit} must be {wanted}, not {value!r}")
        for limit, wanted, *values in (
            ("max_tool_round_trips", "a whole number of at least 0", None, -1),
            ("max_tool_calls_per_response", "a whole number of at least 1, or None", 0),
            ("max_guardrail_retries", "a whole number of at least 0", None, -1),
            ("timeout_seconds", "a number of seconds above 0, or None", 0, "1", True),
            ("model_timeout_seconds", "a number of seconds above 0, or None", math.nan),
        )
        for value in values
    ),
    (
        made(ExecutionPolicy, on_execution_error=lambda error: ""),
        "on_execution_error is called with 4 arguments, the err",
    ),
    (made(ExecutionPolicy, on_arguments_error="x"), "on_arguments_error must be a function of the error, the request"),
    (made(ExecutionPolicy, on_unknown_tool=lambda a, b, c, d: ""), "on_unknown_tool is called with 3 arguments"),
    (made(ExecutionPolicy, before=None), "before must be a list, each item a function of the request and the context"),
    (made(ExecutionPolicy, after=[lambda execution: None]), "a callback in after is called with 2 arguments"),
    (made(ExecutionPolicy, timeout_seconds=-1), "timeout_seconds must be a number of seconds above 0, or None, not -1"),
    (
        made(ExecutionPolicy, max_output_chars=0),
        "max_output_chars must be a whole number of at least 1, or None, not 0",
    ),
    (made(ExecutionPolicy, max_attempts=None), "max_attempts must be a whole number of at least 1, not None"),
    (made(ExecutionPolicy, propagate="no"), "propagate must be True or False, not 'no'"),
    (made(ExecutionPolicy, reveal_errors=None), "reveal_errors must be True or False, not None"),
    (
        made(ApprovalPolicy, approve=None),
        "approve must be a function of the request, the tool and the context, not None",
    ),
    (made(ApprovalPolicy, approve=lambda request: True), "approve is called with 3 arguments"),
    (
        made(ApprovalPolicy, approve=lambda *_: True, applies=["add"]),
        "applies must be a function of the tool, not ['add']",
    ),
    (made(for_tools, ["add"]), "a name for for_tools must be the name of a tool, not ['add']"),
    (made(message_window, 0), "max_messages must be a whole number of at least 1, not 0"),
    (made(message_window, None), "max_messages must be a whole number of at least 1, not None"),
    (made(token_window, 1.5), "max_tokens must be a whole number of at least 1, not 1.5"),
    (made(token_window, 9, len), ""),
    (made(token_window, 9, estimate="gpt"), "estimate must be a function of the message, not 'gpt'"),
    (made(ChatMemory, 3), "store must be a ChatMemoryStore, a path or a URL, with the method 'read', not 3"),
    (made(ChatMemory, window=5), "window must be message_window(…) or token_window(…), not 5"),
    (made(ChatMemory, memory_id=object()), "cannot be written as JSON; use text or a number"),
    (made(ChatMemory().of, object()), "cannot be written as JSON; use text or a number"),
    (made(UserMessage, "Hello"), "must be a list of content blocks, not 'Hello'; create one of text and blocks with"),
    (made(UserMessage, ["Hello"]), "must be a list of content blocks, not 'Hello'"),
    (made(UserMessage, None), "must be a list of content blocks, not None"),
    (made(UserMessage.of, None), "must be a list of content blocks, not None"),
    (made(ChatRequest, messages="Hello"), "messages must be a list, each item a message, such as UserMessage.of(…)"),
    (made(ChatRequest, messages=["Hello"]), "an item of messages must be a message, such as UserMessage.of(…), not 'H"),
    (made(ChatRequest, messages=HELLO, tool_specifications=[add]), "an item of tool_specifications must be a ToolSpec"),
    (made(ChatRequest, messages=HELLO, tool_choice="auto"), "tool_choice must be a ToolChoice, such as ToolChoice.REQ"),
    (made(ChatRequest, messages=HELLO, tool_choice=None), "tool_choice must be a ToolChoice"),
    (
        made(ChatRequest, messages=HELLO, response_format={}),
        "response_format must be a ResponseFormat, or None, not {}",
    ),
    (
        made(ChatRequest, messages=HELLO, temperature="hot"),
        "temperature must be a number of at least 0, or None, not 'h",
    ),
    (
        made(ChatRequest, messages=HELLO, stop_sequences="END"),
        "stop_sequences must be a list, each item text, not 'END'",
    ),
    (made(ChatRequest, messages=HELLO, stop_sequences=None), "stop_sequences must be a list, each item text, not None"),
    (made(ChatRequest, messages=HELLO, extra=[1]), "extra must be a mapping, not [1]"),
    (made(ChatRequestParameters, tool_choice="add"), "tool_choice must be a ToolChoice"),
    (made(ChatRequestParameters, model_name=5), "model_name must be text, or None, not 5"),
    (made(ChatRequestParameters, top_p=-0.5), "top_p must be a number of at least 0, or None, not -0.5"),
    (
        made(ChatRequestParameters, max_output_tokens=0),
        "max_output_tokens must be a whole number of at least 1, or None",
    ),
    (made(ChatRequestParameters, stop_sequences=[3]), "an item of stop_sequences must be text, not 3"),
    (made(ChatRequestParameters, extra=None), "extra must be a mapping, not None"),
    (made(ToolChoice, "required"), "mode must be a ToolChoiceMode, such as ToolChoiceMode.REQUIRED, not 'required'"),
    (made(ToolChoice, ToolChoiceMode.NAMED), "tool_name must be the name of a tool for the mode NAMED, not None"),
    (made(ToolChoice.of, add), "tool_name must be the name of a tool for the mode NAMED, not <function"),
    (made(ResponseFormat, "object"), "schema must be a JSON Schema as a mapping, not 'object'"),
    (made(rate_limited, add, 0, per_seconds=1), "calls must be a whole number of at least 1, not 0"),
    (made(rate_limited, add, 1, per_seconds="1"), "in a whole number of seconds of at least 1, not 1 in '1' seconds"),
    (made(rate_limited, add, 1, per_seconds=1, key=lambda: "x"), "key is called with 1 argument, the context"),
    (made(circuit_broken, add, failures=0), "failures must be a whole number of at least 1, not 0"),
    (
        made(circuit_broken, add, recovery_seconds=None),
        "recovery_seconds must be a number of seconds above 0, not None",
    ),
    (made(circuit_broken, add, recovery_seconds=float("inf")), "recovery_seconds must be finite"),
    (made(cached, add, ttl_seconds=0), "ttl_seconds must be a number of seconds above 0, not 0"),
    (made(cached, add, ttl_seconds=1, max_entries=None), "max_entries must be a whole number of at least 1, not None"),
    (made(cached, add, ttl_seconds=1, key="caller"), "key must be a function of the context, not 'caller'"),
    (made(retried, add, attempts=0), "attempts must be a whole number of at least 1, not 0"),
    (made(retried, add, when=lambda: True), "when is called with 1 argument, the exception"),
    (made(retried, add, first_wait_seconds=-1), "first_wait_seconds must be a number of seconds of at least 0, not -1"),
    (made(Tool, None, EXECUTOR), "specification must be a ToolSpecification, not None"),
    (made(Tool, SPECIFICATION, 3), "the executor of 'add', 3, must have a method execute(request, context)"),
    (made(Tool, SPECIFICATION, EXECUTOR, policy=None), "policy must be a ToolPolicy, not None"),
    (
        made(Tool, SPECIFICATION, EXECUTOR, return_behavior="immediate"),
        "return_behavior must be a ReturnBehavior, not ",
    ),
    (made(Tool, SPECIFICATION, EXECUTOR, always_visible=None), "always_visible must be True or False, not None"),
    (made(tool, always_visible="yes"), "always_visible must be True or False, not 'yes'"),
    (made(OpenAiChatModel, None), "model_name must be the provider's name of a model, not None"),
    (made(OpenAiChatModel, "gpt", dialect="vllm"), "dialect must be an OpenAiDialect, or None, not 'vllm'"),
    (made(AnthropicChatModel, "claude", max_retries=-1), "max_retries must be a whole number of at least 0, not -1"),
    (
        made(AnthropicChatModel, "claude", max_output_tokens=None),
        "max_output_tokens must be a whole number of at least",
    ),
    (
        made(AnthropicChatModel, "x", api_key="x", tool_metadata_keys="a"),
        "metadata keys must be a list, each item the key",
    ),
    (
        made(BedrockChatModel, "a.b", timeout_seconds=None),
        "timeout_seconds must be a number of seconds above 0, not None",
    ),
    (made(BedrockChatModel, "a.b", endpoint_url=3), "the URL must be text, or None, not 3"),
]


@pytest.mark.parametrize(("make", "problem"), OF_OBJECTS, ids=lambda value: None if callable(value) else "")
def test_objects_of_a_service_refuse_wrong_arguments(make: Callable[[], object], problem: str) -> None:
    if not problem:
        make()
        return
    with pytest.raises(DefinitionError) as caught:
        make()
    assert problem in str(caught.value)


@pytest.mark.anyio
async def test_one_callback_or_a_list_counts_as_a_tuple() -> None:
    seen: list[object] = []

    class Observer(InvocationListener):
        def on_invocation_started(self, *_: object) -> None:
            seen.append("started")

    policy = ExecutionPolicy(before=lambda *_: seen.append("before"), after=[lambda *_: seen.append("after")])  # type: ignore[arg-type]  # taken
    service = assistant(calls(call("add", a=1, b=2)), "3", tools=[add], policy=policy, listeners=Observer())
    assert (await service.chat("1 + 2?")).content == "3"
    assert seen == ["started", "before", "after"]
    request = ChatRequest(messages=[UserMessage.of("Hello")], stop_sequences=["END"])  # type: ignore[arg-type]  # taken
    assert request == ChatRequest(messages=HELLO, stop_sequences=("END",))


@pytest.mark.anyio
async def test_decisions_that_cannot_be_are_refused_and_the_invocation_can_still_be_resumed() -> None:
    service = assistant(
        calls(call("add", a=1, b=2)),
        "3",
        tools=[add],
        approval=ApprovalPolicy(approve=lambda *_: Decision.later()),
    )
    with pytest.raises(InvocationSuspended) as suspended:
        await service.chat("1 + 2?")
    state = suspended.value.state
    with pytest.raises(DefinitionError, match="the decision on the call 0 must be a Decision, such as"):
        await resume(service, state, {0: True})  # type: ignore[dict-item]  # the mistake
    with pytest.raises(DefinitionError, match=r"no call 7 waits for a decision; those that wait are \[0\]"):
        await resume(service, state, {7: Decision.yes()})
    assert (await resume(service, state, {0: Decision.yes()})).content == "3"


@pytest.mark.anyio
async def test_an_approver_must_return_a_decision() -> None:
    policy = ApprovalPolicy(approve=lambda *_: "yes")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(DefinitionError, match="approve returned 'yes'; return a Decision, True or False"):
        await assistant(calls(call("add", a=1, b=2)), tools=[add], approval=policy).chat("1 + 2?")


def test_a_model_that_only_streams_serves_as_chat_model() -> None:
    class Streaming:
        stream = ScriptedChatModel(["Hello"]).stream

    class Blocking(Protocol):
        def chat(self, message: str) -> str: ...

    assert ai_service(Blocking, chat_model=Streaming()).chat("Hi") == "Hello"  # type: ignore[arg-type]  # taken
