from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import bridge

PUBLIC = """
    AiMessage Answer ApprovalPolicy ArgumentProblem ArgumentsError Audio BlockingContext BlockingToolProvider
    BridgeError Caller ChatMemory ChatModel ChatModelError ChatRequest ChatRequestParameters ChatResponse
    ClientCredentials ClientHandlers ConfigError Connection ConnectionState ConnectionStatus Content Decision
    DefinitionError Elicitation ElicitationAnswer ExecutionPolicy File HttpTransport IdentityAssertion Image
    InputRequired InvocationContext InvocationError InvocationListener InvocationParameters InvocationSuspended
    InvocationTimeoutError JsonObjectSchema LogLevel McpToolProvider MemoryId MemoryStoreError MemoryTransport
    MissingExtraError NameClashError OAuthLogin OutcomeUnknownError P Question ReplyError ResourceLink Result
    ReturnBehavior Root Roots Sampling SamplingAnswer SamplingMessage ServerAnswerError ServerAuthError ServerConfig
    ServerError ServerRefusedError ServerStatus ServerTimeoutError ServerUnavailableError ServersConfig StdioTransport
    StreamingChatModel SuspendedInvocation SystemMessage TargetError Text TokenStream Tool ToolAnnotations ToolBox
    ToolCallError ToolChoice ToolError ToolExecution ToolExecutionRequest ToolExecutionResult
    ToolExecutionResultMessage ToolExecutor ToolLimitError ToolMemoryId ToolPolicy ToolProvider ToolProviderRequest
    ToolSearch ToolSpecification ToolTimeoutError ToolUse ToolUseResult ToolsChange UnknownToolError UrlElicitation
    UserMessage WireError ai_service cached circuit_broken compensated connect execute execute_timed filtered
    load_config message_window prefixed rate_limited reference_to renamed resume retried run safe_names
    set_thread_limit system_message token_window tool tools_from user_message
"""


def imported_for_type_checkers() -> dict[str, str]:
    """The names that a type checker sees, each with the module that it sees it come from."""
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
