from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bridge
from tests.docs.reference import api_modules
from tests.markdown import ROOT, Document

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENTED = set(api_modules())
"""Modules from which programs may import; everything of AI services is in `bridge` and `bridge.testing`."""

PUBLIC = """
    AfterTool AiMessage Answer AnthropicChatModel ApprovalPolicy ArgumentProblem ArgumentsError Audio
    BedrockChatModel BeforeTool BeforeToolExecution BlockingContext BlockingTask BlockingToolProvider BridgeError
    CallNext Caller ChatEvent ChatMemory ChatMemoryStore ChatMessage ChatModel ChatModelCall ChatModelError
    ChatModelListener ChatRequest ChatRequestParameters ChatRequestTransformer ChatResponse ClientCredentials
    ClientHandlers CompleteResponse CompleteToolCall Completion ConfigError Connection ConnectionState
    ConnectionStatus Content Decision DefinitionError Depends DetachedTools Elicitation ElicitationAnswer
    ErrorHandler ExecutionPolicy Features File FinishReason Folder GuardrailError HttpTransport IdentityAssertion
    Image InMemoryStore InputGuardrailRequest InputRequired IntermediateResponse InvocationContext InvocationError
    InvocationLimits InvocationListener InvocationParameters InvocationSuspended InvocationTimeoutError
    JsonObjectSchema Lifespan LogLevel McpToolProvider MemoryId MemoryStoreError MemoryTransport Middleware
    MissingExtraError NameClashError OAuthLogin OpenAiChatModel OpenAiDialect OutcomeUnknownError
    OutputGuardrailRequest P PartialResponse PartialThinking PartialToolCall PinMismatchError PollingResourceBox
    Prompt PromptArgument PromptBox PromptMessage PromptedToolsChatModel Question RedisResultStore RedisStore Refuse
    RemoteTask ReplyError Reprompt Resource ResourceBox ResourceLink ResourceNotFoundError ResourceTemplate
    ResponseFormat Result Retry ReturnBehavior Rewrite Root Roots Sampling SamplingAnswer SamplingMessage Server
    ServerAnswerError ServerAuthError ServerConfig ServerError ServerRefusedError ServerStatus ServerTimeoutError
    ServerUnavailableError ServersConfig ServiceEvent SessionState Spill SqliteResultStore SqliteStore
    StdioTransport StoredMessages StreamingChatModel SuspendedInvocation SystemMessage TargetError Task TaskPolicy
    Text TokenStream TokenUsage Tool ToolAnnotations ToolBox ToolCallError ToolChoice ToolChoiceMode ToolError
    ToolExecuted ToolExecution ToolExecutionRequest ToolExecutionResult ToolExecutionResultMessage ToolExecutor
    ToolInputGuardrailRequest ToolLimitError ToolLogger ToolMemoryId ToolMiddleware ToolOutputGuardrailRequest
    ToolPerformance ToolPolicy ToolProgress ToolProvider ToolProviderRequest ToolRequestInspector ToolSearch
    ToolSearchRequest ToolSpecification ToolStatistics ToolTimeoutError ToolUse ToolUseResult ToolsChange
    UnknownToolError UnknownToolHandler UriTemplate UrlElicitation UserMessage Verdict WireError ai_service
    backed_up by_embedding by_encoding cached call_blocking chat_messages chat_model_named circuit_broken
    compensated connect enable_telemetry estimate_tokens execute execute_timed files filtered for_tools from_openapi
    guarded input_guardrails is_worth_another_model lifespan load_config message_window namespaced observed
    openai_embeddings output_guardrails prefixed prompt rate_limited reference_to renamed resource respecified
    resume retried run safe_names sampling_with set_thread_limit specifications_from system_message token_window
    tool tools_from unless_read_only user_message with_fallback wrapped
"""


def imported_for_type_checkers() -> dict[str, str]:
    """Return the names that a type checker finds, each with the module that defines it for the type checker."""
    tree = ast.parse(Path(bridge.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_the_public_names_are_these() -> None:
    assert sorted(bridge.__all__) == sorted(PUBLIC.split())


def test_a_type_checker_sees_the_public_names_where_they_are() -> None:
    seen = imported_for_type_checkers()
    assert sorted(seen) == sorted(bridge.__all__)
    for name, module in seen.items():
        assert getattr(bridge, name) is getattr(import_module(module), name)


def test_the_public_names_are_listed_and_a_star_import_gives_them_all() -> None:
    names: dict[str, object] = {}
    exec("from bridge import *", names)
    assert set(bridge.__all__) <= names.keys()
    assert set(bridge.__all__) <= set(dir(bridge))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bridge' has no attribute 'nothing'"):
        _ = getattr(bridge, "nothing")  # noqa: B009 - a type checker would refuse the plain form


@pytest.mark.parametrize(
    ("use", "unwanted"),
    [
        ("pass", r"bridge\..*"),
        ("bridge.tool, bridge.ToolBox", "mcp|mcp_types|starlette|uvicorn|click|docstring_parser|json_repair"),
    ],
)
def test_what_is_not_used_is_not_loaded(use: str, unwanted: str) -> None:
    program = (
        f"import bridge, re, sys; {use}; print(*[name for name in sys.modules if re.fullmatch({unwanted!r}, name)])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []


def test_the_version_is_that_of_the_distribution() -> None:
    assert bridge.__version__ == version("mcp-toolbridge")
    assert "__version__" in dir(bridge)


def programs() -> Iterator[tuple[str, str]]:
    """Yield each program of the docs and the examples with its name; the Python blocks of a page are one program."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = [textwrap.dedent(block.text) for block in Document(path).all_blocks if block.language == "python"]
        yield path.relative_to(ROOT).as_posix(), "\n".join(blocks)


def test_programs_import_from_bridge_and_the_documented_modules_alone() -> None:
    imported = {
        name: {str(node.module) for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)}
        for name, program in programs()
    }
    ours = {name: {each for each in modules if each.split(".")[0] == "bridge"} for name, modules in imported.items()}
    assert {name: modules - DOCUMENTED for name, modules in ours.items() if modules - DOCUMENTED} == {}
    assert ours["docs/services/index.md"] == {"bridge"}


PLAIN = """
import sys
extras = "anthropic boto3 cachetools circuitbreaker httptools openai openapi_pydantic opentelemetry.sdk prompt_toolkit"
for extra in f"{extras} pydantic_monty redis rich tenacity throttled uvloop watchfiles yaml".split():
    sys.modules[extra] = None
import bridge
from bridge import *
import pydoc
assert "from_openapi" in pydoc.render_doc(bridge, renderer=pydoc.plaintext)
assert all(hasattr(bridge, name) for name in bridge.__all__)
try:
    from_openapi({"openapi": "3.1.0"}, ["*"])
except MissingExtraError as error:
    print(error)
"""


def test_without_extras_every_name_can_be_imported_and_a_call_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, timeout=40, check=False)
    missing = "an OpenAPI document needs the package 'openapi-pydantic': pip install 'mcp-toolbridge[openapi]'\n"
    assert (done.stdout, done.stderr) == (missing, "")
