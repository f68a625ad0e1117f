"""Python functions as tools, published over the Model Context Protocol, and tools of MCP servers in Python.

    from bridge import tool

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

Public names are imported on first use (PEP 562), so that a program only loads what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    """The installed version of the distribution mcp-toolbridge."""

    from bridge.client.auth.grants import ClientCredentials, IdentityAssertion, OAuthLogin
    from bridge.client.blocking import BlockingToolProvider, connect
    from bridge.client.config.loading import load_config
    from bridge.client.config.servers import ServerConfig, ServersConfig
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.status import ConnectionState, ConnectionStatus
    from bridge.client.provider import McpToolProvider
    from bridge.client.tasks.blocking import BlockingTask
    from bridge.client.tasks.detached import DetachedTools
    from bridge.client.tasks.remote_task import RemoteTask
    from bridge.client.tool_catalog import ServerStatus, ToolsChange
    from bridge.client.transports.http import HttpTransport
    from bridge.client.transports.memory import MemoryTransport
    from bridge.client.transports.stdio import StdioTransport
    from bridge.errors import (
        ArgumentProblem,
        ArgumentsError,
        BridgeError,
        ChatModelError,
        ConfigError,
        DefinitionError,
        GuardrailError,
        InvocationError,
        InvocationTimeoutError,
        MemoryStoreError,
        MissingExtraError,
        NameClashError,
        OutcomeUnknownError,
        PinMismatchError,
        ReplyError,
        ResourceNotFoundError,
        ServerAnswerError,
        ServerAuthError,
        ServerError,
        ServerRefusedError,
        ServerTimeoutError,
        ServerUnavailableError,
        TargetError,
        ToolCallError,
        ToolError,
        ToolLimitError,
        ToolTimeoutError,
        UnknownToolError,
        WireError,
    )
    from bridge.hosting.run import run
    from bridge.middleware.caching import cached
    from bridge.middleware.guards import circuit_broken, rate_limited, retried
    from bridge.models.anthropic.model import AnthropicChatModel
    from bridge.models.bedrock.model import BedrockChatModel
    from bridge.models.openai.embeddings import openai_embeddings
    from bridge.models.openai.model import OpenAiChatModel, OpenAiDialect
    from bridge.models.prompted import PromptedToolsChatModel
    from bridge.models.provider import chat_model_named
    from bridge.models.sampling import sampling_with
    from bridge.models.wrappers import (
        ChatModelCall,
        ChatModelListener,
        is_worth_another_model,
        observed,
        with_fallback,
    )
    from bridge.openapi.tools import from_openapi
    from bridge.portal import call_blocking
    from bridge.prompts.box import PromptBox
    from bridge.prompts.function import prompt
    from bridge.prompts.prompt import Prompt, PromptArgument, PromptMessage
    from bridge.resources.box import ResourceBox
    from bridge.resources.files import files
    from bridge.resources.folder import Folder
    from bridge.resources.function import resource
    from bridge.resources.polling import PollingResourceBox
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.resources.uri_template import UriTemplate
    from bridge.server.features import Features, namespaced
    from bridge.server.server import Server
    from bridge.service.ai_service import ai_service, resume
    from bridge.service.approval import (
        ApprovalPolicy,
        Decision,
        InvocationSuspended,
        SuspendedInvocation,
        Verdict,
        for_tools,
        unless_read_only,
    )
    from bridge.service.chat_model import (
        ChatEvent,
        ChatModel,
        ChatRequest,
        ChatRequestParameters,
        ChatResponse,
        CompleteResponse,
        CompleteToolCall,
        FinishReason,
        PartialResponse,
        PartialThinking,
        PartialToolCall,
        ResponseFormat,
        StreamingChatModel,
        TokenUsage,
        ToolChoice,
        ToolChoiceMode,
    )
    from bridge.service.compensation import compensated
    from bridge.service.events import (
        BeforeToolExecution,
        IntermediateResponse,
        InvocationListener,
        Result,
        ServiceEvent,
        ToolExecuted,
        ToolLogger,
        ToolPerformance,
        ToolProgress,
        ToolRequestInspector,
        ToolStatistics,
    )
    from bridge.service.guardrails.messages import (
        InputGuardrailRequest,
        OutputGuardrailRequest,
        input_guardrails,
        output_guardrails,
    )
    from bridge.service.guardrails.outcomes import Refuse, Reprompt, Retry, Rewrite
    from bridge.service.guardrails.tools import ToolInputGuardrailRequest, ToolOutputGuardrailRequest, guarded
    from bridge.service.interface import MemoryId
    from bridge.service.loop import ChatRequestTransformer, InvocationLimits
    from bridge.service.memory.chat_memory import ChatMemory, by_encoding, estimate_tokens, message_window, token_window
    from bridge.service.memory.persistent_stores import RedisStore, SqliteStore
    from bridge.service.memory.store import ChatMemoryStore, InMemoryStore, StoredMessages
    from bridge.service.messages import (
        AiMessage,
        ChatMessage,
        SystemMessage,
        ToolExecutionResultMessage,
        UserMessage,
        chat_messages,
    )
    from bridge.service.templates import system_message, user_message
    from bridge.service.token_stream import TokenStream
    from bridge.service.tool_search import ToolSearch, ToolSearchRequest, by_embedding
    from bridge.telemetry.current import enable_telemetry
    from bridge.tools.blocking_context import BlockingContext
    from bridge.tools.caller import Caller, InvocationParameters
    from bridge.tools.channel import LogLevel
    from bridge.tools.completion import Completion
    from bridge.tools.content import Audio, Content, File, Image, ResourceLink, Text
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import (
        AfterTool,
        BeforeTool,
        ErrorHandler,
        ExecutionPolicy,
        UnknownToolHandler,
        execute,
        execute_timed,
    )
    from bridge.tools.function import specifications_from, tool, tools_from
    from bridge.tools.lifespan import Lifespan, lifespan
    from bridge.tools.middleware import CallNext, Middleware, ToolMiddleware
    from bridge.tools.questions import (
        Answer,
        Elicitation,
        ElicitationAnswer,
        InputRequired,
        Question,
        Root,
        Roots,
        Sampling,
        SamplingAnswer,
        SamplingMessage,
        ToolUse,
        ToolUseResult,
        UrlElicitation,
    )
    from bridge.tools.schema.json_schema import JsonObjectSchema, reference_to
    from bridge.tools.schema.parameters import Depends, P, ToolMemoryId
    from bridge.tools.session import SessionState
    from bridge.tools.specification import ToolAnnotations, ToolSpecification
    from bridge.tools.spill.redis_store import RedisResultStore
    from bridge.tools.spill.spill import Spill
    from bridge.tools.spill.sqlite_store import SqliteResultStore
    from bridge.tools.task import Task, TaskPolicy
    from bridge.tools.threads import set_thread_limit
    from bridge.tools.tool import (
        ReturnBehavior,
        Tool,
        ToolExecution,
        ToolExecutionRequest,
        ToolExecutionResult,
        ToolExecutor,
        ToolPolicy,
        ToolProvider,
        ToolProviderRequest,
    )
    from bridge.tools.toolbox import ToolBox
    from bridge.tools.transform import backed_up, filtered, prefixed, renamed, respecified, safe_names, wrapped

__all__ = [
    "AfterTool", "AiMessage", "Answer", "AnthropicChatModel", "ApprovalPolicy", "ArgumentProblem", "ArgumentsError",
    "Audio", "BedrockChatModel", "BeforeTool", "BeforeToolExecution", "BlockingContext", "BlockingTask",
    "BlockingToolProvider", "BridgeError", "CallNext", "Caller", "ChatEvent", "ChatMemory", "ChatMemoryStore",
    "ChatMessage", "ChatModel", "ChatModelCall", "ChatModelError", "ChatModelListener", "ChatRequest",
    "ChatRequestParameters", "ChatRequestTransformer", "ChatResponse", "ClientCredentials", "ClientHandlers",
    "CompleteResponse", "CompleteToolCall", "Completion", "ConfigError", "Connection", "ConnectionState",
    "ConnectionStatus", "Content", "Decision", "DefinitionError", "Depends", "DetachedTools", "Elicitation",
    "ElicitationAnswer", "ErrorHandler", "ExecutionPolicy", "Features", "File", "FinishReason", "Folder",
    "GuardrailError", "HttpTransport", "IdentityAssertion", "Image", "InMemoryStore", "InputGuardrailRequest",
    "InputRequired", "IntermediateResponse", "InvocationContext", "InvocationError", "InvocationLimits",
    "InvocationListener", "InvocationParameters", "InvocationSuspended", "InvocationTimeoutError",
    "JsonObjectSchema", "Lifespan", "LogLevel", "McpToolProvider", "MemoryId", "MemoryStoreError",
    "MemoryTransport", "Middleware", "MissingExtraError", "NameClashError", "OAuthLogin", "OpenAiChatModel",
    "OpenAiDialect", "OutcomeUnknownError", "OutputGuardrailRequest", "P", "PartialResponse", "PartialThinking",
    "PartialToolCall", "PinMismatchError", "PollingResourceBox", "Prompt", "PromptArgument", "PromptBox",
    "PromptMessage", "PromptedToolsChatModel", "Question", "RedisResultStore", "RedisStore", "Refuse", "RemoteTask",
    "ReplyError", "Reprompt", "Resource", "ResourceBox", "ResourceLink", "ResourceNotFoundError",
    "ResourceTemplate", "ResponseFormat", "Result", "Retry", "ReturnBehavior", "Rewrite", "Root", "Roots",
    "Sampling", "SamplingAnswer", "SamplingMessage", "Server", "ServerAnswerError", "ServerAuthError",
    "ServerConfig", "ServerError", "ServerRefusedError", "ServerStatus", "ServerTimeoutError",
    "ServerUnavailableError", "ServersConfig", "ServiceEvent", "SessionState", "Spill", "SqliteResultStore",
    "SqliteStore", "StdioTransport", "StoredMessages", "StreamingChatModel", "SuspendedInvocation", "SystemMessage",
    "TargetError", "Task", "TaskPolicy", "Text", "TokenStream", "TokenUsage", "Tool", "ToolAnnotations", "ToolBox",
    "ToolCallError", "ToolChoice", "ToolChoiceMode", "ToolError", "ToolExecuted", "ToolExecution",
    "ToolExecutionRequest", "ToolExecutionResult", "ToolExecutionResultMessage", "ToolExecutor",
    "ToolInputGuardrailRequest", "ToolLimitError", "ToolLogger", "ToolMemoryId", "ToolMiddleware",
    "ToolOutputGuardrailRequest", "ToolPerformance", "ToolPolicy", "ToolProgress", "ToolProvider",
    "ToolProviderRequest", "ToolRequestInspector", "ToolSearch", "ToolSearchRequest", "ToolSpecification",
    "ToolStatistics", "ToolTimeoutError", "ToolUse", "ToolUseResult", "ToolsChange", "UnknownToolError",
    "UnknownToolHandler", "UriTemplate", "UrlElicitation", "UserMessage", "Verdict", "WireError", "ai_service",
    "backed_up", "by_embedding", "by_encoding", "cached", "call_blocking", "chat_messages", "chat_model_named",
    "circuit_broken", "compensated", "connect", "enable_telemetry", "estimate_tokens", "execute", "execute_timed",
    "files", "filtered", "for_tools", "from_openapi", "guarded", "input_guardrails", "is_worth_another_model",
    "lifespan", "load_config", "message_window", "namespaced", "observed", "openai_embeddings", "output_guardrails",
    "prefixed", "prompt", "rate_limited", "reference_to", "renamed", "resource", "respecified", "resume", "retried",
    "run", "safe_names", "sampling_with", "set_thread_limit", "specifications_from", "system_message",
    "token_window", "tool", "tools_from", "unless_read_only", "user_message", "with_fallback", "wrapped",
]  # fmt: skip

_NAMES = {
    "bridge.client.auth.grants": "ClientCredentials IdentityAssertion OAuthLogin",
    "bridge.client.blocking": "BlockingToolProvider connect",
    "bridge.client.config.loading": "load_config",
    "bridge.client.config.servers": "ServerConfig ServersConfig",
    "bridge.client.connection.connection": "Connection",
    "bridge.client.connection.handlers": "ClientHandlers",
    "bridge.client.connection.status": "ConnectionState ConnectionStatus",
    "bridge.client.provider": "McpToolProvider",
    "bridge.client.tasks.blocking": "BlockingTask",
    "bridge.client.tasks.detached": "DetachedTools",
    "bridge.client.tasks.remote_task": "RemoteTask",
    "bridge.client.tool_catalog": "ServerStatus ToolsChange",
    "bridge.client.transports.http": "HttpTransport",
    "bridge.client.transports.memory": "MemoryTransport",
    "bridge.client.transports.stdio": "StdioTransport",
    "bridge.errors": (
        "ArgumentProblem ArgumentsError BridgeError ChatModelError ConfigError DefinitionError GuardrailError "
        "InvocationError InvocationTimeoutError MemoryStoreError MissingExtraError NameClashError OutcomeUnknownError "
        "PinMismatchError ReplyError ResourceNotFoundError ServerAnswerError ServerAuthError ServerError "
        "ServerRefusedError ServerTimeoutError ServerUnavailableError TargetError ToolCallError ToolError "
        "ToolLimitError ToolTimeoutError UnknownToolError WireError"
    ),
    "bridge.hosting.run": "run",
    "bridge.middleware.caching": "cached",
    "bridge.middleware.guards": "circuit_broken rate_limited retried",
    "bridge.models.anthropic.model": "AnthropicChatModel",
    "bridge.models.bedrock.model": "BedrockChatModel",
    "bridge.models.openai.embeddings": "openai_embeddings",
    "bridge.models.openai.model": "OpenAiChatModel OpenAiDialect",
    "bridge.models.prompted": "PromptedToolsChatModel",
    "bridge.models.provider": "chat_model_named",
    "bridge.models.sampling": "sampling_with",
    "bridge.models.wrappers": "ChatModelCall ChatModelListener is_worth_another_model observed with_fallback",
    "bridge.openapi.tools": "from_openapi",
    "bridge.portal": "call_blocking",
    "bridge.prompts.box": "PromptBox",
    "bridge.prompts.function": "prompt",
    "bridge.prompts.prompt": "Prompt PromptArgument PromptMessage",
    "bridge.resources.box": "ResourceBox",
    "bridge.resources.files": "files",
    "bridge.resources.folder": "Folder",
    "bridge.resources.function": "resource",
    "bridge.resources.polling": "PollingResourceBox",
    "bridge.resources.resource": "Resource ResourceTemplate",
    "bridge.resources.uri_template": "UriTemplate",
    "bridge.server.features": "Features namespaced",
    "bridge.server.server": "Server",
    "bridge.service.ai_service": "ai_service resume",
    "bridge.service.approval": (
        "ApprovalPolicy Decision InvocationSuspended SuspendedInvocation Verdict for_tools unless_read_only"
    ),
    "bridge.service.chat_model": (
        "ChatEvent ChatModel ChatRequest ChatRequestParameters ChatResponse CompleteResponse CompleteToolCall "
        "FinishReason PartialResponse PartialThinking PartialToolCall ResponseFormat StreamingChatModel TokenUsage "
        "ToolChoice ToolChoiceMode"
    ),
    "bridge.service.events": (
        "BeforeToolExecution IntermediateResponse InvocationListener Result ServiceEvent ToolExecuted ToolLogger "
        "ToolPerformance ToolProgress ToolRequestInspector ToolStatistics"
    ),
    "bridge.service.guardrails.messages": (
        "InputGuardrailRequest OutputGuardrailRequest input_guardrails output_guardrails"
    ),
    "bridge.service.guardrails.outcomes": "Refuse Reprompt Retry Rewrite",
    "bridge.service.guardrails.tools": "ToolInputGuardrailRequest ToolOutputGuardrailRequest guarded",
    "bridge.service.interface": "MemoryId",
    "bridge.service.loop": "ChatRequestTransformer InvocationLimits",
    "bridge.service.memory.chat_memory": "ChatMemory by_encoding estimate_tokens message_window token_window",
    "bridge.service.memory.store": "ChatMemoryStore InMemoryStore StoredMessages",
    "bridge.service.messages": (
        "AiMessage ChatMessage SystemMessage ToolExecutionResultMessage UserMessage chat_messages"
    ),
    "bridge.service.memory.persistent_stores": "RedisStore SqliteStore",
    "bridge.service.templates": "system_message user_message",
    "bridge.service.token_stream": "TokenStream",
    "bridge.service.compensation": "compensated",
    "bridge.service.tool_search": "ToolSearch ToolSearchRequest by_embedding",
    "bridge.telemetry.current": "enable_telemetry",
    "bridge.tools.completion": "Completion",
    "bridge.tools.content": "Audio Content File Image ResourceLink Text",
    "bridge.tools.channel": "LogLevel",
    "bridge.tools.caller": "Caller InvocationParameters",
    "bridge.tools.blocking_context": "BlockingContext",
    "bridge.tools.context": "InvocationContext",
    "bridge.tools.lifespan": "Lifespan lifespan",
    "bridge.tools.middleware": "CallNext Middleware ToolMiddleware",
    "bridge.tools.execution": (
        "AfterTool BeforeTool ErrorHandler ExecutionPolicy UnknownToolHandler execute execute_timed"
    ),
    "bridge.tools.function": "specifications_from tool tools_from",
    "bridge.tools.questions": (
        "Answer Elicitation ElicitationAnswer InputRequired Question Root Roots Sampling SamplingAnswer "
        "SamplingMessage ToolUse ToolUseResult UrlElicitation"
    ),
    "bridge.tools.schema.json_schema": "JsonObjectSchema reference_to",
    "bridge.tools.schema.parameters": "Depends P ToolMemoryId",
    "bridge.tools.session": "SessionState",
    "bridge.tools.specification": "ToolAnnotations ToolSpecification",
    "bridge.tools.spill.redis_store": "RedisResultStore",
    "bridge.tools.spill.spill": "Spill",
    "bridge.tools.spill.sqlite_store": "SqliteResultStore",
    "bridge.tools.task": "Task TaskPolicy",
    "bridge.tools.threads": "set_thread_limit",
    "bridge.tools.tool": (
        "ReturnBehavior Tool ToolExecution ToolExecutionRequest ToolExecutionResult ToolExecutor ToolPolicy "
        "ToolProvider ToolProviderRequest"
    ),
    "bridge.tools.toolbox": "ToolBox",
    "bridge.tools.transform": "backed_up filtered prefixed renamed respecified safe_names wrapped",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # with a module __getattr__, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name on first access and cache it."""
        if name == "__version__":
            value = globals()[name] = import_module("importlib.metadata").version("mcp-toolbridge")
            return value
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
