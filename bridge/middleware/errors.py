"""Masking of errors: clients get an id instead of the text, and the log has both."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.errors import DefinitionError, ToolError
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.checks import listed, require_type
from bridge.tools.middleware import Middleware, method_of, target_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import Request

_logger = logging.getLogger("bridge.middleware")
_ID_CHARS = 8


class ErrorMaskingMiddleware(Middleware):
    """Replaces the text of every failure by an id, under which the log has the failure.

    A server masks exceptions that are not meant for clients anyway. This masks the others too: texts of
    `bridge.ToolError`, problems of arguments, and error results of other servers' tools.

    Args:
        message: Text for clients; ``{id}`` is replaced by the id.
        shown: Types of exceptions whose text clients get, such as an error class of the program.

    Raises:
        DefinitionError: An item of ``shown`` is no exception class.
    """

    def __init__(
        self,
        message: str = "the request failed; its id in the server's log is {id}",
        *,
        shown: tuple[type[Exception], ...] = (),
    ) -> None:
        require_type(message, str, "message", "text")
        for each in listed(shown, "shown", "a class of exceptions"):
            if not (isinstance(each, type) and issubclass(each, Exception)):
                raise DefinitionError(f"shown takes classes of exceptions, not {each!r}")
        self._message = message
        self._shown = shown

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Mask the failure of a request."""
        try:
            result = await call_next(request, context)
        except Exception as error:
            if isinstance(error, self._shown):
                raise
            raise ToolError(self._masked(request, error)) from None
        if isinstance(result, ToolExecutionResult) and result.is_error:
            return ToolExecutionResult.error(self._masked(request, result.text))
        return result

    def _masked(self, request: Request, failure: Exception | str) -> str:
        error_id = uuid4().hex[:_ID_CHARS]
        named = f"{method_of(request)} {target_of(request)!r}"
        error = failure if isinstance(failure, Exception) else None
        _logger.error("%s failed, with the id %s: %s", named, error_id, failure, exc_info=error)
        return self._message.replace("{id}", error_id)
