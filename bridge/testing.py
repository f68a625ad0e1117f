"""Test doubles and in-memory connections for programs that use this package.

model = ScriptedChatModel([ToolExecutionRequest("add", {"a": 1, "b": 2}), "The sum is 3."])
add, calls = recorded(add)
assistant = ai_service(Assistant, chat_model=model, tools=[add])
assert await assistant.chat("1 + 2?") == "The sum is 3."
assert [call.request.arguments for call in calls] == [{"a": 1, "b": 2}]
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bridge.client.config.servers import ServerConfig
from bridge.client.provider import McpToolProvider
from bridge.client.transports.memory import MemoryTransport
from bridge.errors import DefinitionError, ToolError
from bridge.models.scripted import Reply, Script, ScriptedChatModel
from bridge.server.auth.access import EVERYTHING
from bridge.server.auth.credentials import RequestUser
from bridge.server.auth.identity import current_user
from bridge.server.auth.jwt import JwtVerifier
from bridge.server.auth.tokens import VerifiedToken
from bridge.server.features import Features
from bridge.server.server import Server
from bridge.tools.checks import require_count
from bridge.tools.dependencies import overriding
from bridge.tools.function import one_tool, tools_from
from bridge.tools.middleware import WrappedExecutor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from bridge.client.connection.handlers import ClientHandlers
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import CallNext, Middleware
    from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutionResult

__all__ = [
    "Call",
    "Reply",
    "Script",
    "ScriptedChatModel",
    "TokenSigner",
    "connected",
    "failing",
    "overriding",
    "recorded",
    "recorded_all",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a recorded tool."""

    request: ToolExecutionRequest
    context: InvocationContext
    result: ToolExecutionResult | None = None
    """The tool's result; None if it raised."""
    error: BaseException | None = None
    """The tool's exception; None if it returned."""


def recorded(source: object) -> tuple[Tool, Sequence[Call]]:
    """Wrap a tool so that its calls are recorded.

    Args:
        source: A Tool or function, or another source with one tool.

    Returns:
        The wrapped tool, and the list of its calls in order of completion; the list grows with each call.

    Raises:
        DefinitionError: The source has no tool, or several.
    """
    (tool,), calls = recorded_all(one_tool(source))
    return tool, calls


def recorded_all(*sources: object) -> tuple[list[Tool], Sequence[Call]]:
    """Wrap several tools so that their calls are recorded in one list.

    Args:
        sources: Tools, functions, objects with tools, or iterables of these (see `bridge.tools_from`).

    Returns:
        The wrapped tools, and the list of their calls in order of completion.

    Raises:
        DefinitionError: A source has no tools.
    """
    calls: list[Call] = []

    async def record(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        try:
            result = await call_next(request, context)
        except BaseException as error:
            calls.append(Call(request=request, context=context, error=error))
            raise
        calls.append(Call(request=request, context=context, result=result))
        return result

    return [replace(tool, executor=WrappedExecutor(tool.executor, record)) for tool in tools_from(sources)], calls


def failing(source: object, times: int, error: Exception | None = None) -> Tool:
    """Wrap a tool so that its first calls fail; for tests of error handlers and retries.

    Args:
        source: A Tool or function, or another source with one tool.
        times: Number of calls that fail.
        error: Exception to raise. Defaults to a `ToolError` with the number of the attempt.

    Raises:
        DefinitionError: The source has no tool, or several.
    """
    require_count(times, "times", least=0)
    tool, attempts = one_tool(source), count(1)

    async def fail(
        request: ToolExecutionRequest, context: InvocationContext, call_next: CallNext
    ) -> ToolExecutionResult:
        if (attempt := next(attempts)) <= times:
            raise error or ToolError(f"attempt {attempt} of {times} that fail")
        return await call_next(request, context)

    return replace(tool, executor=WrappedExecutor(tool.executor, fail))


@asynccontextmanager
async def connected(
    *sources: object,
    protocol: Literal["auto", "legacy", "2026-07-28"] = "auto",
    handlers: ClientHandlers | None = None,
    name: str = "memory",
    caller: Caller | None = None,
    lifespan: Lifespan[Any] | Callable[[], Any] | None = None,
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
    middleware: Iterable[Middleware] = (),
) -> AsyncIterator[McpToolProvider]:
    """Publish tools, resources and prompts, and import them again over an MCP connection within this process.

    Args:
        sources: A `bridge.Server`, which is used itself; or sources of tools, resources and prompts. Changes of boxes
            and servers are propagated.
        protocol: Protocol version to use.
        handlers: Handlers for questions that the tools ask.
        name: Name of the server.
        caller: Authenticated caller of the tools; None for no authentication.
        lifespan: Lifespan of the server, as for `bridge.server.Server`.
        overrides: Other functions for dependencies, by the function that each replaces; see `overriding`.
        middleware: Middleware of the server, as for `bridge.server.Server`.

    Yields:
        The provider: ``provider.tools``, ``provider.resources`` and ``provider.prompts`` have what was imported.

    Raises:
        DefinitionError: A source has no tools, or a lifespan is given beside a server.
    """
    if len(sources) == 1 and isinstance(sources[0], Server):
        server = sources[0]
        if lifespan is not None or middleware:
            raise DefinitionError(
                "give the lifespan and middleware to the Server: connected(server) has them from there"
            )
    else:
        server = Server(Features.of(*sources), name=name, lifespan=lifespan, middleware=middleware)
    config = ServerConfig(name=name, transport=MemoryTransport(server), required=True, protocol=protocol)
    token = None
    if caller is not None:
        claims = dict(caller.claims) or None
        verified = VerifiedToken(token="", client_id=caller.name, scopes=sorted(caller.scopes), claims=claims)
        user = RequestUser(verified, EVERYTHING)
        user.caller = caller
        token = current_user.set(user)
    try:
        with overriding(overrides or {}):
            async with McpToolProvider(config, handlers=handlers) as provider:
                yield provider
    finally:
        if token is not None:
            current_user.reset(token)


class TokenSigner:
    """An issuer of tokens without a server, with a key of its own: ``http_app(add, auth=signer.verifier)``.

    Args:
        issuer: ``iss`` of its tokens.
        audience: ``aud`` of its tokens.
    """

    def __init__(self, issuer: str = "bridge.testing", audience: str = "bridge.testing") -> None:
        self.issuer = issuer
        self.audience = audience
        self._key = ec.generate_private_key(ec.SECP256R1())

    @property
    def public_key(self) -> str:
        """The public key in PEM, as `JwtVerifier` and ``bridge serve --oauth-public-key`` take it."""
        return self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    @cached_property
    def verifier(self) -> JwtVerifier:
        """Verifies its tokens."""
        return JwtVerifier(self.issuer, self.audience, public_key=self.public_key)

    def token(
        self, subject: str, *, scopes: Iterable[str] = (), expires_in_seconds: float = 3600.0, **claims: Any
    ) -> str:
        """Sign a token.

        Args:
            subject: Its ``sub``, which is the caller's name.
            scopes: Scopes that it grants.
            expires_in_seconds: Seconds until it expires; negative for one that has expired.
            claims: Further claims, and others in place of ``iss``, ``aud``, ``exp`` and ``scope``; None for without.
        """
        given = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": subject,
            "exp": int(time.time() + expires_in_seconds),
            "scope": " ".join(scopes),
            **claims,
        }
        return jwt.encode({name: each for name, each in given.items() if each is not None}, self._key, "ES256")
