"""Durations and records of requests, in the log of the program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.errors import ToolCallError
from bridge.protocol.messages import ProtocolError
from bridge.redaction import HIDDEN, holds_key, names_secret
from bridge.text import clip, escape_controls
from bridge.tools.annotated_checks import checked
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.checks import require_callable, require_count
from bridge.tools.middleware import CompleteRequest, GetPromptRequest, Middleware, method_of, target_of
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import Request

_logger = logging.getLogger("bridge.middleware")
_MAX_DEPTH = 20


class TimingMiddleware(Middleware):
    """Measures the duration of every request.

    Args:
        report: Receives the request, its context and the seconds, also of failed requests; None to log the method,
            the target and the milliseconds.

    Raises:
        DefinitionError: ``report`` is no function of three arguments.
    """

    def __init__(self, report: Callable[[Request, InvocationContext, float], object] | None = None) -> None:
        if report is not None:
            require_callable(report, 3, "report", "the request, the context and the seconds")
        self._report = report or _log_duration

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Measure a request."""
        start = perf_counter()
        try:
            return await call_next(request, context)
        finally:
            self._report(request, context, perf_counter() - start)


def _log_duration(request: Request, _: InvocationContext, seconds: float) -> None:
    _logger.info("%s took %.1f ms", _named(request), seconds * 1000)


class LoggingMiddleware(Middleware):
    """Logs every request when it has ended: its method, target, caller, arguments, duration and outcome.

    Values of arguments whose names tell of secrets, and texts that look like an API key, are replaced by ``***``.

    Args:
        arguments: False to leave the arguments out.
        is_secret: Returns True for the name of an argument whose value is secret; the default knows names such as
            ``password``, ``api_key`` and ``authorization``.
        max_chars: Maximum logged characters of the arguments.
        logger: The logger; by default ``bridge.middleware``.

    Raises:
        DefinitionError: An argument is invalid.
    """

    @checked()
    def __init__(
        self,
        *,
        arguments: bool = True,
        is_secret: Callable[[str], bool] = names_secret,
        max_chars: int = 1_000,
        logger: logging.Logger | None = None,
    ) -> None:
        require_callable(is_secret, 1, "is_secret", "the name of an argument")
        require_count(max_chars, "max_chars")
        self._arguments = arguments
        self._is_secret = is_secret
        self._max_chars = max_chars
        self._logger = logger or _logger

    async def on_request(self, request: Request, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        """Log a request."""
        start, outcome, level = perf_counter(), "cancelled", logging.WARNING
        try:
            result = await call_next(request, context)
            is_error = isinstance(result, ToolExecutionResult) and result.is_error
            outcome, level = ("error", logging.WARNING) if is_error else ("ok", logging.INFO)
        except InputRequired:
            outcome, level = "input required", logging.INFO
            raise
        except (ToolCallError, ProtocolError) as error:
            outcome = f"error: {clip(str(error))!r}"
            raise
        except Exception as error:
            outcome, level = f"error: {type(error).__name__}", logging.ERROR
            raise
        else:
            return result
        finally:
            caller = "" if context.caller is None else f" by {context.caller.name!r}"
            shown = self._shown(request) if self._arguments else ""
            milliseconds = (perf_counter() - start) * 1000
            self._logger.log(level, "%s%s%s: %s in %.1f ms", _named(request), shown, caller, outcome, milliseconds)

    def _shown(self, request: Request) -> str:
        """Return the arguments as JSON without secrets, behind a space; empty if there are none."""
        if isinstance(request, CompleteRequest):
            given: Mapping[str, Any] = {**request.arguments, request.argument: request.value}
        elif isinstance(request, ToolExecutionRequest | GetPromptRequest) and isinstance(request.arguments, Mapping):
            given = request.arguments
        else:
            return ""
        text = to_json(self._redacted(given, _MAX_DEPTH), fallback=repr, inf_nan_mode="constants").decode()
        return f" {escape_controls(clip(text, self._max_chars))}"

    def _redacted(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return HIDDEN if holds_key(value) else value
        if not depth:
            return "…"
        if isinstance(value, Mapping):
            return {
                name: HIDDEN if self._is_secret(name) else self._redacted(each, depth - 1)
                for name, each in value.items()
            }
        return [self._redacted(each, depth - 1) for each in value] if isinstance(value, list | tuple) else value


def _named(request: Request) -> str:
    target = target_of(request)
    return method_of(request) if target is None else f"{method_of(request)} {clip(target)!r}"
