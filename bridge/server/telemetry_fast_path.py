"""Fast path with telemetry: the same plans and responses, each recorded."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from bridge.protocol.messages import ProtocolError, client_name, result_message
from bridge.protocol.versions import INTERNAL_ERROR, MISSING_CAPABILITY
from bridge.server.fast_path import FastPath, PlainResponder, answerable, protocol_error, refusal, refused
from bridge.telemetry import switch
from bridge.telemetry.conventions import INPUT_REQUIRED
from bridge.telemetry.instruments import Peer
from bridge.telemetry.operations import ServerOperation, error_type_of
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.server.core import ServerCore
    from bridge.server.methods.method import Method, PlainRequest
    from bridge.telemetry.instruments import OperationSeries
    from bridge.telemetry.observer import Observer
    from bridge.tools.context import Caller, InvocationContext
    from bridge.types import Json, Step

_SESSION_HEADER = "mcp-session-id"


def fast_path_of(core: ServerCore, transport: str, caller: Callable[[], Caller | None] = lambda: None) -> FastPath:
    """Return the fast path of a server, with telemetry if that is on.

    Args:
        core: The server.
        transport: The transport of its clients: ``stdio`` or ``http``.
        caller: Returns the authenticated caller of the current request.
    """
    observer = switch.observer()
    if observer is None:
        return FastPath(core)
    return FastPath(core, partial(ObservedResponder, core=core, observer=observer, transport=transport, caller=caller))


def skip_replayed(messages: Iterable[Json]) -> None:
    """Do not record messages again that were answered here, and are replayed to the SDK."""
    if (observer := switch.observer()) is not None:
        for message in messages:
            observer.will_be_replayed(message.get("id"), message["method"])


class ObservedResponder(PlainResponder):
    """Writes the responses of a method, and records them."""

    def __init__(
        self,
        method: Method,
        *,
        core: ServerCore,
        observer: Observer,
        transport: str,
        caller: Callable[[], Caller | None],
    ) -> None:
        super().__init__(method)
        self._start_plain, self.start_plain = self.start_plain, self._start_observed
        self._caller = caller
        self._target_param = method.target_param
        self._observer = observer
        self._transport = transport
        self._series: dict[str, OperationSeries] = {}
        self._targets: dict[tuple[str, str], tuple[OperationSeries, str | None]] = {}
        core.features.on_change(self._targets.clear)

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:
        """Return the response, the request itself if it has to be run, or None for the SDK."""
        start = perf_counter()
        try:
            planned = self._plan(request)
        except ProtocolError as error:
            self._answered(request, start, error.code)
            return refusal(request.id, error)
        if type(planned) is not bytes:
            tracer = self._observer.tracer
            if planned is not None and tracer is not None:
                request.is_sampled = tracer.begins(request.params.get("_meta"))
                if request.is_sampled:
                    request.tool = None  # its span is current in a task of its own
            return planned
        self._answered(request, start)
        return result_message(request.id, planned)

    async def run(self, request: PlainRequest, context: InvocationContext) -> tuple[bytes, int]:
        """Run a request and record it; return the response and its JSON-RPC error code, 0 for a result."""
        write = request.written
        operation = request.operation or self._begun(request, context.caller, context.headers)

        def written(result: Json) -> tuple[bytes | Json, str | None]:
            error_type = error_type_of(result)
            return write(result), None if error_type == INPUT_REQUIRED else error_type

        try:
            response, error_type = await self._run(request, context, written)
        except (Exception, InputRequired) as raised:  # noqa: BLE001 - logged and answered
            error = answerable(self._method, raised)
            if request.is_passed_on(error) and isinstance(error, InputRequired):
                _end_asking(operation, request, error)
                return b"", 0
            found = protocol_error(self._method, request, error)
            operation.end_with_code(found.code, found.message)
            return refused(request, found)
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end(error_type)
        return request.response(response), 0

    def _start_observed(self, request: PlainRequest, step: Step) -> bytes | None:
        """Start a request with a tool and record it; return the response if the call has ended."""
        operation = self._begun(request, self._caller())
        response = self._start_plain(request, step)
        if response is None:
            request.operation = operation
        else:
            operation.end()
        return response

    def pass_on(self, _request: PlainRequest, _receive: Callable[[bytes | None], None]) -> None:
        """Pass nothing on: only `run` records a call."""

    async def call_plain(self, request: PlainRequest, account: str) -> tuple[bytes, int]:
        """Run a request with a tool and record it, like `run`."""
        operation = request.operation or self._begun(request, self._caller())
        write = request.write
        error_type: str | None = None

        def written(result: Json) -> bytes:
            nonlocal error_type
            if result.get("isError"):
                error_type = error_type_of(result)
            return write(result)

        request.write = written
        try:
            result = await self._call_plain(request, account)
        except (Exception, InputRequired) as raised:  # noqa: BLE001 - logged and answered
            found = protocol_error(self._method, request, answerable(self._method, raised))
            operation.end_with_code(found.code, found.message)
            return refusal(request.id, found), found.code
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end(error_type)
        return result_message(request.id, result), 0

    def _begun(
        self, request: PlainRequest, caller: Caller | None, headers: Mapping[str, str] | None = None
    ) -> ServerOperation:
        """Begin to observe a request that is run."""
        observer, params = self._observer, request.params
        if self._target_param is None:
            series, server, details = self._series_of(request.version), None, None
        else:
            name = params[self._target_param]
            series, server = self._targets.get((name, request.version)) or self._target(name, request)
            details = observer.call_details(
                name,
                server,
                None if caller is None else caller.name,
                self._transport,
                params.get("arguments") or {},
                self._method.noun,
                client_name(params) if request.modern else request.client,
            )
        return ServerOperation(
            observer,
            series,
            request.id,
            params.get("_meta"),
            None if headers is None or observer.tracer is None else headers.get(_SESSION_HEADER),
            details,
            # Requests to an upstream server continue the trace of the call, even if it is not sampled.
            is_sampled=request.is_sampled if server is None else None,
        )

    def _target(self, name: str, request: PlainRequest) -> tuple[OperationSeries, str | None]:
        """Return the series and the upstream server of a target, cached until the tools change."""
        target = self._method.target(request.params)
        known, upstream = (None, None) if target is None else (target.name, target.upstream)
        series = self._observer.series(self._method.name, known, Peer(self._transport, request.version))
        if known == name:  # there may be any number of URIs
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
