"""The fast path while somebody observes: the same plans and answers, each heard of."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.server.fast_path import UNSERVED, FastPath, agreed_version, answer, write_result
from bridge.server.protocol import METHOD_NOT_FOUND, PROTOCOL_VERSION_KEY, ProtocolError
from bridge.telemetry import switch
from bridge.telemetry.conventions import CANCELLED, TOOL_ERROR, TOOLS_CALL
from bridge.telemetry.measures import Peer
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from bridge.server.fast_path import PlainCall
    from bridge.server.publisher import Publisher
    from bridge.telemetry.measures import Series
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.operations import Told
    from bridge.tools.context import InvocationContext
    from bridge.tools.json_reading import Json

_SESSION_HEADER = "mcp-session-id"


def fast_path_of(publisher: Publisher, transport: str) -> FastPath:
    """The fast path for what a publisher serves, observed where somebody observes.

    Args:
        publisher: What is served.
        transport: How clients come: ``stdio`` or ``http``.
    """
    observer = switch.observer()
    return FastPath(publisher) if observer is None else ObservedFastPath(publisher, observer, transport)


def hide_replay(messages: Iterable[Json]) -> None:
    """Messages that were answered, and observed, come to the SDK as well."""
    if (observer := switch.observer()) is not None:
        for message in messages:
            observer.will_be_replayed(message.get("id"), message["method"])


class ObservedFastPath(FastPath):
    """The fast path, of which an observer hears.

    Args:
        publisher: What is served.
        observer: Who hears.
        transport: How clients come.
    """

    def __init__(self, publisher: Publisher, observer: Observer, transport: str) -> None:
        super().__init__(publisher)
        self._observer = observer
        self._tools = publisher.tools
        self._transport = transport
        self._peers: dict[str, Peer] = {}
        self._agreed_version = ""
        self._bound: dict[tuple[str, str], tuple[Series, str | None]] = {}
        publisher.tools.on_change(self._bound.clear)

    def handshake(self, message: Json, version: str = "") -> bytes | PlainCall | None:
        """Plan an answer; what is answered with that has been observed."""
        version = version or self._agreed_version
        if message["method"] == TOOLS_CALL:
            return FastPath.handshake(self, message, version)
        start = perf_counter()
        plan = FastPath.handshake(self, message, version)
        if isinstance(plan, bytes):
            self._answered(message, version, start)
        return plan

    def modern(self, message: Json) -> bytes | PlainCall | None:
        """Plan an answer; what is answered with that has been observed."""
        if message["method"] == TOOLS_CALL:
            return FastPath.modern(self, message)
        start = perf_counter()
        plan = FastPath.modern(self, message)
        if isinstance(plan, bytes):
            self._answered(message, message["params"]["_meta"][PROTOCOL_VERSION_KEY], start)
        return plan

    def initialize(self, message: Json) -> bytes | None:
        """Plan the answer to ``initialize``, which over stdio tells the version of all that follows."""
        start = perf_counter()
        plan = super().initialize(message)
        if plan is not None:
            self._agreed_version = agreed_version(message["params"]["protocolVersion"])
            self._answered(message, self._agreed_version, start)
        return plan

    async def run(self, call: PlainCall, context: InvocationContext) -> tuple[bytes, int]:
        """Run a call, from its beginning to its answer observed."""
        observer = self._observer
        series, server = self._bound.get((call.name, call.version)) or self._bind(call)
        told = None
        if observer.sinks:
            caller = None if context.caller is None else context.caller.name
            told = observer.told_of_call(call.id, call.name, server, caller, call.arguments)
        if observer.tracer is not None and (server is not None or observer.tracer.begins(call.meta)):
            return await self._run_traced(call, context, series, told, is_drawn=server is None)
        observer.in_flight += 1
        error_type, code = None, None
        start = perf_counter()
        try:
            written, failed = await self._called(call, context)
            if failed:
                error_type = TOOL_ERROR
            return answer(call.id, written), 0
        except (ProtocolError, InputRequired) as error:
            refusal, code = self._refusal(call, error)
            error_type = str(code)
            return refusal, code
        except BaseException:
            error_type = CANCELLED
            raise
        finally:
            end = perf_counter()
            observer.in_flight -= 1
            observer.note((series, start, end, error_type, code, told))

    async def _run_traced(
        self, call: PlainCall, context: InvocationContext, series: Series, told: Told | None, *, is_drawn: bool
    ) -> tuple[bytes, int]:
        session_id = context.headers.get(_SESSION_HEADER)
        operation = self._observer.serve(series, call.id, call.meta, session_id, told, is_drawn=is_drawn)
        try:
            written, failed = await self._called(call, context)
        except (ProtocolError, InputRequired) as error:
            refusal, code = self._refusal(call, error)
            operation.end_with_code(code, error.message if isinstance(error, ProtocolError) else None)
            return refusal, code
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end(TOOL_ERROR if failed else None)
        return answer(call.id, written), 0

    def _called(self, call: PlainCall, context: InvocationContext) -> Coroutine[Any, Any, tuple[bytes, bool]]:
        write = self._heard_stamped if call.modern else _heard
        return self._publisher.call(call.name, call.arguments, context, write, modern=call.modern, access=self._access)

    def _heard_stamped(self, result: Json) -> tuple[bytes, bool]:
        return self._write_stamped(result), result["isError"]

    def _bind(self, call: PlainCall) -> tuple[Series, str | None]:
        """What is the same for every call of a tool, until the tools change."""
        tool = self._tools.find(call.name)
        series = self._observer.series(TOOLS_CALL, call.name, self._peer(call.version))
        bound = self._bound[call.name, call.version] = series, None if tool is None else tool.server
        return bound

    def _peer(self, version: str) -> Peer:
        known = self._peers.get(version)
        if known is None:
            known = self._peers[version] = Peer(self._transport, version)
        return known

    def _answered(self, message: Json, version: str, start: float) -> None:
        method: str = message["method"]
        params: Any = message.get("params") or {}
        self._observer.answered(
            self._observer.series(method, None, self._peer(version)),
            message["id"],
            params.get("_meta"),
            perf_counter() - start,
            METHOD_NOT_FOUND if method in UNSERVED else 0,
        )


def _heard(result: Json) -> tuple[bytes, bool]:
    """A result as JSON, and whether it says that the tool failed."""
    return write_result(result), result["isError"]
