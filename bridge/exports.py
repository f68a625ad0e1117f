"""Public names: one list for `bridge` and the documented modules, with the module that defines each name.

`lazy_exports` makes ``__all__``, ``__getattr__`` and ``__dir__`` of a package of the list, so that a program loads only
what it uses (PEP 562). ``make reference`` writes the type stubs (``__init__.pyi``) and the API reference from it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "Tools": (
        ("tool", "bridge.tools.function", "Makes a function or a method a tool."),
        ("ToolError", "bridge.errors", "Fails a call with a text for the caller."),
        ("InvocationContext", "bridge.tools.context", "Gives a tool its caller, progress, logs and questions."),
        ("P", "bridge.tools.schema.parameters", "Describes and restricts a parameter."),
        ("Depends", "bridge.tools.schema.parameters", "Fills a parameter with the result of a function."),
        ("Text", "bridge.tools.content", "Content of a result: text."),
        ("Image", "bridge.tools.content", "Content of a result: a picture."),
        ("Audio", "bridge.tools.content", "Content of a result: sound."),
        ("File", "bridge.tools.content", "Content of a result: an embedded file."),
        ("ResourceLink", "bridge.tools.content", "Content of a result: the address of a resource."),
        ("Content", "bridge.tools.content", "Type of all content."),
        ("ToolBox", "bridge.tools.toolbox", "Holds tools by name, to call and to serve them."),
        ("execute", "bridge.tools.execution", "Calls a tool of a box."),
        ("ToolExecutionRequest", "bridge.tools.tool", "Names a tool and its arguments."),
        ("ToolExecutionResult", "bridge.tools.tool", "Has the content of a result, or the failure."),
        ("ExecutionPolicy", "bridge.tools.execution", "Sets timeouts, approval and error handling of calls."),
        ("Tool", "bridge.tools.tool", "Combines a specification with an executor."),
        ("ToolSpecification", "bridge.tools.specification", "Describes a tool to a model."),
        ("ToolAnnotations", "bridge.tools.specification", "Says if a tool reads, destroys or repeats safely."),
        ("ToolExecutor", "bridge.tools.tool", "Protocol of an executor written by hand."),
        ("ToolProvider", "bridge.tools.tool", "Protocol of a source of tools for each request."),
        ("ReturnBehavior", "bridge.tools.tool", "Decides if a result goes to the model or to the caller."),
        ("TaskPolicy", "bridge.tools.task", "Makes calls of a tool tasks."),
        ("tools_from", "bridge.tools.function", "Finds the tools of functions, objects and modules."),
        ("filtered", "bridge.tools.transform", "Leaves some tools of a source out."),
        ("renamed", "bridge.tools.transform", "Gives tools other names."),
        ("prefixed", "bridge.tools.transform", "Puts a text before the names of tools."),
        ("wrapped", "bridge.tools.transform", "Runs a function around the calls of a tool."),
        ("from_openapi", "bridge.openapi.tools", "Makes operations of an OpenAPI document tools."),
    ),
    "Resources and prompts": (
        ("resource", "bridge.resources.function", "Makes a function a resource or a resource template."),
        ("prompt", "bridge.prompts.function", "Makes a function a prompt."),
        ("files", "bridge.resources.files", "Serves the files of a folder as resources."),
        ("ResourceBox", "bridge.resources.box", "Holds resources by URI, and announces changes."),
        ("PromptMessage", "bridge.prompts.prompt", "Is a message of a prompt."),
    ),
    "Running a server": (
        ("run", "bridge.hosting.run", "Serves tools from a program, over stdio or HTTP."),
        ("Server", "bridge.server.server", "Describes a server: its tools, name, limits and middleware."),
        ("http_app", "bridge.server.http.app", "Makes an ASGI app of a server."),
        ("mount", "bridge.server.http.mount", "Serves inside a Starlette or FastAPI app."),
        ("Gateway", "bridge.gateway.gateway", "Serves the features of many servers as one."),
        ("lifespan", "bridge.tools.lifespan", "Opens and closes what the functions of a server share."),
        ("Middleware", "bridge.tools.middleware", "Base class of middleware around calls and other requests."),
        ("Caller", "bridge.tools.caller", "Identifies the client of a call."),
        ("enable_telemetry", "bridge.telemetry.current", "Records metrics and traces with OpenTelemetry."),
    ),
    "Clients": (
        ("connect", "bridge.client.blocking", "Connects to MCP servers from synchronous programs."),
        ("McpToolProvider", "bridge.client.provider", "Connects to MCP servers from asynchronous programs."),
        ("ServerConfig", "bridge.client.config.servers", "Configures one server in Python."),
        ("load_config", "bridge.client.config.loading", "Reads an mcp.json."),
        ("StdioTransport", "bridge.client.transports.stdio", "Starts a server as a process."),
        ("HttpTransport", "bridge.client.transports.http", "Reaches a server by its URL."),
        ("OAuthLogin", "bridge.client.auth.grants", "Logs in to a server in the browser."),
        ("ClientCredentials", "bridge.client.auth.grants", "Logs in to a server without a person."),
        ("ClientHandlers", "bridge.client.connection.handlers", "Answers questions of servers."),
    ),
    "AI services": (
        ("ai_service", "bridge.service.ai_service", "Implements an interface with a chat model and tools."),
        ("Result", "bridge.service.events", "Has an answer with its tool calls and token usage."),
        ("TokenStream", "bridge.service.token_stream", "Streams an answer."),
        ("MemoryId", "bridge.service.interface", "Marks the parameter that selects a conversation."),
        ("ChatMemory", "bridge.service.memory.chat_memory", "Keeps the messages of a conversation."),
        ("message_window", "bridge.service.memory.chat_memory", "Limits a conversation to its last messages."),
        ("system_message", "bridge.service.templates", "Sets the system message of a method."),
        ("user_message", "bridge.service.templates", "Sets the template of a method's user message."),
        ("SystemMessage", "bridge.service.messages", "Is an instruction to a model."),
        ("UserMessage", "bridge.service.messages", "Is a message of the user."),
        ("AiMessage", "bridge.service.messages", "Is an answer of a model."),
        ("ApprovalPolicy", "bridge.service.approval", "Asks a person before a tool runs."),
        ("InvocationSuspended", "bridge.service.approval", "Raised while a call waits for approval."),
        ("resume", "bridge.service.ai_service", "Continues a suspended call."),
        ("guarded", "bridge.service.guardrails.tools", "Checks the arguments and results of a tool."),
        ("ToolSearch", "bridge.service.tool_search", "Lets a model search many tools."),
        ("InvocationListener", "bridge.service.events", "Receives the events of calls."),
    ),
    "Chat models": (
        ("OpenAiChatModel", "bridge.models.openai.model", "Uses models of OpenAI, and of servers with its API."),
        ("AnthropicChatModel", "bridge.models.anthropic.model", "Uses models of Anthropic."),
        ("BedrockChatModel", "bridge.models.bedrock.model", "Uses models on Amazon Bedrock."),
        ("ChatModel", "bridge.service.chat_model", "Protocol of a chat model."),
        ("ChatRequest", "bridge.service.chat_model", "Has the messages and tools for a chat model."),
        ("ChatResponse", "bridge.service.chat_model", "Has the answer of a chat model."),
        ("with_fallback", "bridge.models.wrappers", "Uses another model if one fails."),
    ),
    "Errors": (
        ("BridgeError", "bridge.errors", "Base class of all errors."),
        ("DefinitionError", "bridge.errors", "A definition or an option is wrong."),
        ("NameClashError", "bridge.errors", "Two tools have the same name."),
        ("ConfigError", "bridge.errors", "A configuration is wrong."),
        ("ServerError", "bridge.errors", "A remote server failed."),
        ("ChatModelError", "bridge.errors", "A chat model failed."),
        ("GuardrailError", "bridge.errors", "A guardrail refused a message or a call."),
    ),
}
"""Names of `bridge` by section of the API reference, the most important first: name, module, and use."""

ROOMS: Mapping[str, Mapping[str, str]] = {
    "bridge.tools": {
        "bridge.tools.blocking_context": "BlockingContext",
        "bridge.tools.caller": "InvocationParameters",
        "bridge.tools.channel": "LogLevel",
        "bridge.tools.completion": "Completion",
        "bridge.tools.execution": "AfterTool BeforeTool ErrorHandler UnknownToolHandler execute_timed",
        "bridge.tools.function": "specifications_from",
        "bridge.tools.lifespan": "Lifespan",
        "bridge.tools.middleware": "CallNext ToolMiddleware",
        "bridge.tools.questions": (
            "Answer Elicitation ElicitationAnswer InputRequired Question Root Roots Sampling SamplingAnswer "
            "SamplingMessage SamplingOptions ToolUse ToolUseResult UrlElicitation"
        ),
        "bridge.tools.schema.json_schema": "JsonObjectSchema reference_to",
        "bridge.tools.schema.parameters": "ToolMemoryId",
        "bridge.tools.session": "SessionState",
        "bridge.tools.spill.redis_store": "RedisResultStore",
        "bridge.tools.spill.spill": "Spill",
        "bridge.tools.spill.sqlite_store": "SqliteResultStore",
        "bridge.tools.task": "Task",
        "bridge.tools.threads": "set_thread_limit",
        "bridge.tools.tool": "ToolExecution ToolPolicy ToolProviderRequest",
        "bridge.tools.transform": "backed_up respecified safe_names",
    },
    "bridge.openapi": {"bridge.openapi.tools": "running"},
    "bridge.resources": {
        "bridge.resources.folder": "Folder",
        "bridge.resources.polling": "PollingResourceBox",
        "bridge.resources.resource": "Resource ResourceTemplate",
        "bridge.resources.uri_template": "UriTemplate",
    },
    "bridge.prompts": {
        "bridge.prompts.box": "PromptBox",
        "bridge.prompts.prompt": "Prompt PromptArgument",
    },
    "bridge.server": {
        "bridge.server.card": "ServerCard",
        "bridge.server.code.limits": "CodeLimits",
        "bridge.server.events.options": "EventOptions",
        "bridge.server.features": "Features namespaced",
        "bridge.server.http.probes": "Probes",
        "bridge.server.lists.search": "ServerToolSearch",
        "bridge.server.options": "HttpOptions MountOptions ServerOptions",
        "bridge.server.profiles": "Profile",
        "bridge.server.tasks.options": "TaskOptions",
        "bridge.server.tasks.shared.redis_store": "RedisTaskStore",
        "bridge.server.tasks.sqlite_store": "SqliteTaskStore",
        "bridge.wire.extension": "Extension",
    },
    "bridge.server.auth": {
        "bridge.server.auth.auth": "Auth",
        "bridge.server.auth.introspection": "Introspection",
        "bridge.server.auth.jwt": "JwtVerifier",
        "bridge.server.auth.keys": "ApiKey ApiKeys KeyFile",
        "bridge.server.auth.tokens": "IssuerUnavailableError TokenExpiredError TokenRefusedError VerifiedToken",
    },
    "bridge.server.limits": {"bridge.server.limits.limits": "CallerLimits Limits Rate"},
    "bridge.gateway": {
        "bridge.gateway.merging": "merged_servers",
        "bridge.gateway.in_process": "from_mcp",
    },
    "bridge.middleware": {
        "bridge.middleware.caching": "CachingMiddleware cached",
        "bridge.middleware.errors": "ErrorMaskingMiddleware",
        "bridge.middleware.guards": (
            "CircuitBreakerMiddleware RateLimitMiddleware RetryMiddleware circuit_broken rate_limited retried"
        ),
        "bridge.middleware.logs": "LoggingMiddleware TimingMiddleware",
        "bridge.protocol.messages": "ProtocolError",
        "bridge.tools.middleware": (
            "CompleteRequest GetPromptRequest ListRequest Middleware ReadResourceRequest Request method_of target_of"
        ),
    },
    "bridge.skills": {
        "bridge.skills.folder": "FolderSkills skills_in",
        "bridge.skills.skill": "Skill SkillFile SkillMismatchError",
        "bridge.skills.source": "Skills",
    },
    "bridge.events": {
        "bridge.client.events": "EventSubscription RemoteEvents",
        "bridge.events.event_type": "EventType",
        "bridge.events.function": "event",
        "bridge.events.handling": "handle_events",
        "bridge.events.signatures": "verify_webhook",
        "bridge.events.occurrence": "Event EventBatch EventReader EventRequest EventStream",
        "bridge.events.source": "Events LocalEvents",
    },
    "bridge.client": {
        "bridge.client.auth.grants": (
            "AssertionExchange FileAssertion IdentityAssertion PerCaller SecretHeader TokenExchange"
        ),
        "bridge.client.blocking": "BlockingTask BlockingToolProvider",
        "bridge.client.blocking_events": "BlockingEvents",
        "bridge.client.config.loading": "parse_config",
        "bridge.client.config.schema": "config_json_schema",
        "bridge.client.config.servers": "ServersConfig",
        "bridge.client.config.variables": "InputDefinition InputSource",
        "bridge.client.connection.connection": "Connection",
        "bridge.client.connection.processes": "ProcessOptions",
        "bridge.client.connection.running_call": "CallOptions",
        "bridge.client.connection.status": "ConnectionState ConnectionStatus ReconnectPolicy ServerInfo ToolListing",
        "bridge.client.prompts": "RemotePrompts",
        "bridge.client.remote_tool": "RemoteExecutor",
        "bridge.client.resources": "RemoteResources",
        "bridge.client.tasks.detached": "DetachedTools",
        "bridge.client.tasks.remote_task": "RemoteTask",
        "bridge.client.tool_catalog": "RemoteName ServerStatus ToolsChange",
        "bridge.client.transports.memory": "MemoryTransport",
        "bridge.client.transports.process_limits": "ProcessLimits",
        "bridge.client.transports.transport": "UnusableTransport",
    },
    "bridge.service": {
        "bridge.portal": "call_blocking",
        "bridge.service.approval": "Decision SuspendedInvocation Verdict for_tools unless_read_only",
        "bridge.service.chat_model": (
            "ChatEvent ChatRequestParameters CompleteResponse CompleteToolCall FinishReason PartialResponse "
            "PartialThinking PartialToolCall ResponseFormat StreamingChatModel TokenUsage ToolChoice ToolChoiceMode"
        ),
        "bridge.service.compensation": "compensated",
        "bridge.service.events": (
            "BeforeToolExecution IntermediateResponse ServiceEvent ToolExecuted ToolLogger ToolPerformance "
            "ToolProgress ToolRequestInspector ToolStatistics"
        ),
        "bridge.service.guardrails.messages": (
            "InputGuardrailRequest OutputGuardrailRequest input_guardrails output_guardrails"
        ),
        "bridge.service.guardrails.outcomes": "Refuse Reprompt Retry Rewrite",
        "bridge.service.guardrails.tools": "ToolInputGuardrailRequest ToolOutputGuardrailRequest",
        "bridge.service.loop": "ChatRequestTransformer InvocationLimits",
        "bridge.service.memory.chat_memory": "by_encoding estimate_tokens token_window",
        "bridge.service.memory.persistent_stores": "RedisStore SqliteStore",
        "bridge.service.memory.store": "ChatMemoryStore InMemoryStore StoredMessages",
        "bridge.service.messages": "ChatMessage ToolExecutionResultMessage chat_messages",
        "bridge.service.tool_search": "ToolSearchRequest by_embedding",
    },
    "bridge.models": {
        "bridge.models.openai.embeddings": "openai_embeddings",
        "bridge.models.openai.model": "OpenAiDialect",
        "bridge.models.prompted": "PromptedToolsChatModel",
        "bridge.models.provider": "chat_model_named",
        "bridge.models.sampling": "sampling_with",
        "bridge.models.wrappers": "ChatModelCall ChatModelListener is_worth_another_model observed",
    },
    "bridge.adapters": {
        "bridge.adapters.anthropic": "anthropic_tools run_anthropic",
        "bridge.adapters.langchain": "LangChainTool PROGRESS_EVENT from_langchain langchain_tools",
        "bridge.adapters.langchain_agents": "langchain_middleware",
        "bridge.adapters.openai": "openai_responses_tools openai_tools run_openai run_openai_responses",
        "bridge.adapters.openai_agents": "from_openai_agents openai_agents_server openai_agents_tools",
        "bridge.adapters.pydantic_ai": "ToolProgressEvent from_pydantic_ai pydantic_ai_toolset",
        "bridge.adapters.sdk": "sdk_server",
    },
    "bridge.testing": {
        "bridge.models.scripted": "Reply Script ScriptedChatModel",
        "bridge.testing": "Call TokenSigner connected failing overriding recorded recorded_all",
    },
    "bridge.errors": {
        "bridge.errors": (
            "ArgumentProblem ArgumentsError ConfigProblem InvocationError InvocationTimeoutError MemoryStoreError "
            "MissingExtraError OutcomeUnknownError PinMismatchError ReplyError ResourceNotFoundError ResultError "
            "ServerAnswerError ServerAuthError ServerFailure ServerRefusedError ServerTimeoutError "
            "ServerUnavailableError TargetError ToolCallError ToolLimitError ToolTimeoutError UnknownToolError "
            "WireError"
        ),
    },
}
"""Names of the other documented modules by the module that defines them.

A package has in addition those of `bridge` that its modules define, apart from names of modules, such as
``bridge.tools.tool``.
"""

_ROOT_MODULES = {name: module for section in ROOT.values() for name, module, _ in section}
_MODULES = {*_ROOT_MODULES.values(), *(module for homes in ROOMS.values() for module in homes)}


def modules_of(package: str) -> dict[str, str]:
    """Return the public names of a documented module, each with the module that defines it."""
    if package == "bridge":
        return dict(_ROOT_MODULES)
    own = {name: module for module, names in ROOMS[package].items() for name in names.split()}
    of_root = {
        name: module
        for name, module in _ROOT_MODULES.items()
        if f"{module}.".startswith(f"{package}.") and f"{package}.{name}" not in _MODULES
    }
    return {**of_root, **own}


def home_of(name: str) -> str | None:
    """Return the documented module of a name that `bridge` does not have; None if there is none."""
    return next((room for room, homes in ROOMS.items() if name in " ".join(homes.values()).split()), None)


def public(name: str) -> Any:
    """Return an object by its name in `bridge`, for a method that is a short form of a function of a higher layer."""
    return getattr(import_module(_ROOT_MODULES[name]), name)


def lazy_exports(package: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package.

    A name is imported on first access, and then is an attribute of the package.
    """
    modules = modules_of(package)

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return list(modules), get, names
