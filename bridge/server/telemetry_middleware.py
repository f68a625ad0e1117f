"""What the SDK answers, observed: a middleware in the place of the SDK's own, whose spans would be second ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp import MCPError
from pydantic import ValidationError

from bridge.server.protocol import INVALID_PARAMS
from bridge.server.sse import is_message
from bridge.telemetry.conventions import TOOLS_CALL
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from bridge.server.core import Publisher
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.operations import ServerOperation
    from bridge.tools.context import Caller

    Request = ServerRequestContext[Any, Any]


class ObservingMiddleware:
    """Tells an observer of every message.

    Args:
        publisher: What is served.
        observer: Who is told.
        caller_of_request: Says who sent the message that is being answered.
    """

    def __init__(
        self, publisher: Publisher, observer: Observer, caller_of_request: Callable[[], Caller | None]
    ) -> None:
        self._tools = publisher.tools
        self._observer = observer
        self._caller_of_request = caller_of_request

    async def __call__(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Have a message answered, and tell what came of it."""
        if self._observer.is_replay(ctx.request_id, ctx.method):
            return await call_next(ctx)
        operation = self._begun(ctx)
        try:
            result = await call_next(ctx)
        except MCPError as error:
            operation.end_with_code(error.error.code, error.error.message)
            raise
        except ValidationError:
            operation.end_with_code(
                INVALID_PARAMS, "Invalid request parameters"
            )  # what pydantic says quotes the client
            raise
        except Exception as error:
            operation.end(type(error).__name__)
            raise
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end_with_result(result)
        return result

    def _begun(self, ctx: Request) -> ServerOperation:
        params: Any = ctx.params or {}
        name = params.get("name") if ctx.method == TOOLS_CALL else None
        tool = self._tools.find(name) if isinstance(name, str) else None
        peer = client_of(ctx)
        arguments = params.get("arguments")
        caller = self._caller_of_request()
        series, details = self._observer.series(ctx.method, None if tool is None else tool.name, peer), None
        if ctx.method == TOOLS_CALL:
            details = self._observer.call_details(
                name if isinstance(name, str) else None,
                None if tool is None else tool.server,
                None if caller is None else caller.name,
                peer.transport,
                arguments if isinstance(arguments, dict) else {},
            )
        return self._observer.serve(
            series,
            ctx.request_id,
            params.get("_meta") if isinstance(params.get("_meta"), dict) else None,
            None if ctx.request is None else ctx.request.headers.get("mcp-session-id"),
            details,
        )


def client_of(ctx: Request) -> Peer:
    """Who sent a message, as telemetry tells of it."""
    return Peer(_transport_of(ctx), ctx.protocol_version or "")


def _transport_of(ctx: Request) -> str:
    if ctx.request is None:
        return "stdio"
    return "sse" if is_message(ctx.request.scope) else "http"
