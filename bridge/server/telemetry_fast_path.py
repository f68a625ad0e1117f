"""Fast path with telemetry: the same plans and responses, each recorded."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from bridge.server.fast_path import FastPath, PlainResponder, protocol_error, refusal
from bridge.server.methods.method import PlainRequest
from bridge.server.protocol import INTERNAL_ERROR, MISSING_CAPABILITY, ProtocolError, result_message
from bridge.telemetry import switch
from bridge.telemetry.conventions import INPUT_REQUIRED, TOOL_ERROR
from bridge.telemetry.instruments import Peer
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.server.core import ServerCore
    from bridge.server.methods.method import Method
    from bridge.telemetry.instruments import OperationSeries
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.operations import ServerOperation
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_SESSION_HEADER = "mcp-session-id"


def fast_path_of(core: ServerCore, transport: str) -> FastPath:
    """Return the fast path of a server, with telemetry if that is on.

    Args:
        core: The server.
        transport: The transport of its clients: ``stdio`` or ``http``.
    """
    observer = switch.observer()
    if observer is None:
        return FastPath(core)
    return FastPath(core, partial(ObservedResponder, core=core, observer=observer, transport=transport))


def skip_replayed(messages: Iterable[Json]) -> None:
    """Do not record messages again that were answered here, and are replayed to the SDK."""
    if (observer := switch.observer()) is not None:
        for message in messages:
            observer.will_be_replayed(message.get("id"), message["method"])


class ObservedResponder(PlainResponder):
    """Writes the responses of a method, and records them."""

    def __init__(self, method: Method, *, core: ServerCore, observer: Observer, transport: str) -> None:
        super().__init__(method)
        self._target_param = method.target_param
        self._observer = observer
        self._transport = transport
        self._series: dict[str, OperationSeries] = {}
        self._targets: dict[tuple[str, str], tuple[OperationSeries, str | None]] = {}
        core.tools.on_change(self._targets.clear)

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:
        """Return the response, the request itself if it has to be run, or None for the SDK."""
        start = perf_counter()
        try:
            planned = self._plan(request)
        except ProtocolError as error:
            self._answered(request, start, error.code)
            return refusal(request.id, error)
        if type(planned) is not bytes:
            if isinstance(planned, PlainRequest):
                planned.tool = None  # a call is recorded with its context
            return planned
        self._answered(request, start)
        return result_message(request.id, planned)

    async def run(self, request: PlainRequest, context: InvocationContext) -> tuple[bytes, int]:
        """Run a request and record it; return the response and its JSON-RPC error code, 0 for a result."""
        observer, params, write = self._observer, request.params, request.written
        meta = params.get("_meta")
        if self._target_param is None:
            series, server, details = self._series_of(request.version), None, None
        else:
            caller, name = context.caller, params[self._target_param]
            series, server = self._targets.get((name, request.version)) or self._target(name, request)
            details = observer.call_details(
                name, server, None if caller is None else caller.name, self._transport, params.get("arguments") or {}
            )
        tracer = observer.tracer
        operation = observer.serve(
            series,
            request.id,
            meta,
            None if tracer is None else context.headers.get(_SESSION_HEADER),
            details,
            # Requests to an upstream server continue the trace of the call, even if it is not sampled.
            is_sampled=None if tracer is None or server is not None else tracer.begins(meta),
        )

        def written(result: Json) -> tuple[bytes | Json, bool]:
            return write(result), "isError" in result and result["isError"]

        try:
            response, failed = await self._run(request, context, written)
        except (ProtocolError, InputRequired) as error:
            if request.is_passed_on(error) and isinstance(error, InputRequired):
                _end_asking(operation, request, error)
                return b"", 0
            found = protocol_error(self._method, request, error)
            operation.end_with_code(found.code, found.message)
            return refusal(request.id, found), found.code
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end(TOOL_ERROR if failed else None)
        return request.response(response), 0

    def _target(self, name: str, request: PlainRequest) -> tuple[OperationSeries, str | None]:
        """Return the series and the upstream server of a target, cached until the tools change."""
        target = self._method.target(request.params)
        known, upstream = (None, None) if target is None else (target.name, target.upstream)
        series = self._observer.series(self._method.name, known, Peer(self._transport, request.version))
        self._targets[name, request.version] = series, upstream
        return series, upstream

    def _series_of(self, version: str) -> OperationSeries:
        """Return the series of requests without a target."""
        known = self._series.get(version)
        if known is None:
            known = self._series[version] = self._observer.series(
                self._method.name, None, Peer(self._transport, version)
            )
        return known

    def _answered(self, request: PlainRequest, start: float, code: int | None = None) -> None:
        """Record a request that was answered at once."""
        seconds = perf_counter() - start
        self._observer.answered(
            self._series_of(request.version), request.id, request.params.get("_meta"), seconds, code
        )


def _end_asking(operation: ServerOperation, request: PlainRequest, asked: InputRequired) -> None:
    """End the operation of a call that asks, which the SDK's server answers with the questions or an error."""
    from bridge.server.channel import missing_capability  # noqa: PLC0415 - imports the SDK

    if not request.modern:
        operation.end_with_code(INTERNAL_ERROR)
    elif any(missing_capability(each, request.capabilities) is not None for each in asked.questions.values()):
        operation.end_with_code(MISSING_CAPABILITY)
    else:
        operation.end(INPUT_REQUIRED)
