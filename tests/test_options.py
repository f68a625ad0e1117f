"""Every option of what users make is checked where it is given: a wrong value is not accepted and used later."""

from __future__ import annotations

import inspect
import math
import re
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bridge import (
    ChatMemory,
    ClientCredentials,
    ClientHandlers,
    Depends,
    ExecutionPolicy,
    Gateway,
    HttpTransport,
    McpToolProvider,
    OAuthLogin,
    Server,
    ServerConfig,
    StdioTransport,
    ToolSearch,
    ai_service,
    filtered,
    http_app,
    prompt,
    resource,
    tool,
    tools_from,
)
from bridge.client import AssertionExchange, IdentityAssertion, PerCaller, ReconnectPolicy, SecretHeader, TokenExchange
from bridge.errors import BridgeError
from bridge.middleware import (
    CachingMiddleware,
    CircuitBreakerMiddleware,
    ErrorMaskingMiddleware,
    LoggingMiddleware,
    RateLimitMiddleware,
    RetryMiddleware,
)
from bridge.models import sampling_with
from bridge.prompts import PromptBox
from bridge.resources import ResourceBox
from bridge.server import CodeLimits, Extension, Profile, ServerToolSearch, TaskOptions
from bridge.server.auth import ApiKey, Introspection, JwtVerifier
from bridge.server.limits import CallerLimits, Limits, Rate
from bridge.service import ChatRequestParameters, InvocationLimits
from bridge.testing import ScriptedChatModel, failing
from bridge.tools import Spill
from bridge.tools.task import TaskPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

URL = "https://tools.example.org"
MODEL = ScriptedChatModel([])


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


def ask(a: str) -> str:
    """Ask."""
    return a


def source() -> str:
    return ""


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a function: what decorates it stays with it, and no other test has to find that."""
    return FunctionType(function.__code__, function.__globals__, function.__name__)


class Assistant(Protocol):
    async def chat(self, message: str) -> str: ...


def made(kind: Callable[..., Any], *given: Any, **needed: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return lambda **options: kind(*given, **(needed | options)), kind


MADE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    each[1].__name__: each
    for each in (
        (lambda **options: tools_from(tool(**options)(fresh(source))), tool),
        (lambda **options: ResourceBox(resource("x://1", **options)(fresh(source))), resource),
        (lambda **options: PromptBox(prompt(**options)(fresh(ask))), prompt),
        made(ApiKey, "a", "0123456789abcdef"),
        made(AssertionExchange, idp_token_url=URL),
        made(CachingMiddleware, ttl_seconds=1),
        made(CallerLimits),
        made(ChatMemory),
        made(ChatRequestParameters),
        made(CircuitBreakerMiddleware),
        made(ClientCredentials, issuer=URL, client_id="a", client_secret="b"),
        made(ClientHandlers),
        made(CodeLimits),
        made(Depends, ask),
        made(ErrorMaskingMiddleware),
        made(ExecutionPolicy),
        made(Extension, id="com.example/colours"),
        made(Gateway),
        made(HttpTransport, URL),
        made(IdentityAssertion, issuer=URL, client_id="a", assertion=source),
        made(Introspection, URL, "a", "b", audience="c"),
        made(InvocationLimits),
        made(JwtVerifier, URL, "a"),
        made(Limits),
        made(LoggingMiddleware),
        made(McpToolProvider, URL),
        made(OAuthLogin),
        made(PerCaller, SecretHeader()),
        made(Profile, name="a"),
        made(Rate, calls=1, per_seconds=1),
        made(RateLimitMiddleware, calls=1, per_seconds=1),
        made(ReconnectPolicy),
        made(RetryMiddleware),
        made(SecretHeader),
        made(Server, add, name="a"),
        made(ServerConfig, name="a", transport=HttpTransport(URL)),
        made(ServerToolSearch),
        made(Spill),
        made(StdioTransport, "a"),
        made(TaskOptions),
        made(TaskPolicy),
        made(TokenExchange, token_url=URL, client_id="a"),
        made(ToolSearch),
        made(ai_service, Assistant, chat_model=MODEL),
        made(failing, add, times=1),
        made(filtered, [add]),
        made(http_app, add),
        made(sampling_with, MODEL),
    )
}
NUMBERS: tuple[Any, ...] = (-5, math.nan, "many", True)
NOTHING_ELSE = re.compile(
    r"(str|bool|bytes|None|(tuple|frozenset|Collection|Iterable|Sequence)\[str(, \.\.\.)?\]|Mapping\[str, str\]| \| )+"
)


def options(*, of_numbers: bool) -> Iterator[tuple[str, str]]:
    for name, (_, kind) in MADE.items():
        for each in inspect.signature(kind).parameters.values():
            annotation = str(each.annotation)
            if each.kind not in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD) or each.default is each.empty:
                continue
            alternatives = set(annotation.split(" | ")) - {"None"}
            if alternatives <= {"int", "float"} if of_numbers else NOTHING_ELSE.fullmatch(annotation):
                yield name, each.name


@pytest.mark.parametrize(("name", "option"), [*options(of_numbers=True)])
def test_a_number_is_no_text_and_not_below_its_minimum(name: str, option: str) -> None:
    make, _ = MADE[name]
    make()
    for value in NUMBERS:
        if (option, value) in {("temperature", -5), ("top_p", -5)}:
            continue
        with pytest.raises((BridgeError, ValueError), match="rate" if name == "Rate" else option):
            make(**{option: value})


@pytest.mark.parametrize(("name", "option"), [*options(of_numbers=False)])
def test_an_option_of_a_simple_type_is_of_that_type(name: str, option: str) -> None:
    make, _ = MADE[name]
    make()
    with pytest.raises((BridgeError, TypeError)):
        make(**{option: object()})
