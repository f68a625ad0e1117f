"""The fast path while somebody observes: the same plans and answers, each heard of."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.server.fast_path import UNSERVED, FastPath
from bridge.server.protocol import METHOD_NOT_FOUND, PROTOCOL_VERSION_KEY, ProtocolError, result_message, write_result
from bridge.telemetry import switch
from bridge.telemetry.conventions import TOOL_ERROR, TOOLS_CALL
from bridge.telemetry.instruments import Peer
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.server.core import ServerCore
    from bridge.server.fast_path import PlainCall
    from bridge.telemetry.instruments import OperationSeries
    from bridge.telemetry.observer import Observer
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

    Kind = tuple[OperationSeries, str | None]
    """The series of calls of a tool, and the upstream server that has it."""

_SESSION_HEADER = "mcp-session-id"


def fast_path_of(publisher: ServerCore, transport: str) -> FastPath:
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

    def __init__(self, publisher: ServerCore, observer: Observer, transport: str) -> None:
        super().__init__(publisher)
        self._observer = observer
        self._tools = publisher.tools
        self._transport = transport
        self._peers: dict[str, Peer] = {}
        self._kinds: dict[tuple[str, str], Kind] = {}
        publisher.tools.on_change(self._kinds.clear)

    def initialize(self, message: Json) -> bytes | None:
        """Plan the answer to ``initialize``, and observe it."""
        start = perf_counter()
        return self._observed(super().initialize(message), message, self._agreed_version, start)

    def _handshake_at_once(self, message: Json, version: str) -> bytes | None:
        start = perf_counter()
        return self._observed(super()._handshake_at_once(message, version), message, version, start)

    def _modern_at_once(self, message: Json) -> bytes | None:
        start = perf_counter()
        version: str = message["params"]["_meta"][PROTOCOL_VERSION_KEY]
        return self._observed(super()._modern_at_once(message), message, version, start)

    async def run(self, call: PlainCall, context: InvocationContext) -> tuple[bytes, int]:
        """Run a call and observe it."""
        observer, caller = self._observer, context.caller
        series, server = self._kinds.get((call.name, call.version)) or self._kind(call.name, call.version)
        details = observer.call_details(
            call.name, server, None if caller is None else caller.name, self._transport, call.arguments
        )
        tracer = observer.tracer
        operation = observer.serve(
            series,
            call.id,
            call.meta,
            None if tracer is None else context.headers.get(_SESSION_HEADER),
            details,
            # What a call asks of an upstream server belongs to its trace, sampled or not.
            is_sampled=None if tracer is None or server is not None else tracer.begins(call.meta),
        )
        try:
            write = self._heard_stamped if call.modern else _heard
            written, failed = await self._publisher.call(
                call.name, call.arguments, context, write, modern=call.modern, access=self._access
            )
        except (ProtocolError, InputRequired) as error:
            refusal, code = self._refusal(call, error)
            operation.end_with_code(code, error.message if isinstance(error, ProtocolError) else None)
            return refusal, code
        except BaseException:
            operation.end_cancelled()
            raise
        operation.end(TOOL_ERROR if failed else None)
        return result_message(call.id, written), 0

    def _heard_stamped(self, result: Json) -> tuple[bytes, bool]:
        return self._write_stamped(result), result["isError"]

    def _kind(self, called: str, version: str) -> Kind:
        """The series and the upstream server of calls of a tool, kept until the tools change."""
        tool = self._tools.find(called)
        server = None if tool is None else tool.server
        kind = self._kinds[called, version] = self._observer.series(TOOLS_CALL, called, self._peer(version)), server
        return kind

    def _peer(self, version: str) -> Peer:
        known = self._peers.get(version)
        if known is None:
            known = self._peers[version] = Peer(self._transport, version)
        return known

    def _observed(self, plan: bytes | None, message: Json, version: str, start: float) -> bytes | None:
        """What was answered without waiting for anything, if it was."""
        if plan is not None:
            method: str = message["method"]
            params: Any = message.get("params") or {}
            self._observer.answered(
                self._observer.series(method, None, self._peer(version)),
                message["id"],
                params.get("_meta"),
                perf_counter() - start,
                METHOD_NOT_FOUND if method in UNSERVED else None,
            )
        return plan


def _heard(result: Json) -> tuple[bytes, bool]:
    """A result as JSON, and whether it says that the tool failed."""
    return write_result(result), result["isError"]
