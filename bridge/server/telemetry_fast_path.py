"""The fast path while somebody observes: the same plans and answers, each heard of."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.server.fast_path import UNSERVED, FastPath, agreed_version
from bridge.server.protocol import METHOD_NOT_FOUND, PROTOCOL_VERSION_KEY
from bridge.telemetry import switch
from bridge.telemetry.conventions import TOOL_ERROR
from bridge.telemetry.measures import Peer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.server.fast_path import PlainCall
    from bridge.server.publisher import Publisher
    from bridge.telemetry.measures import Series
    from bridge.telemetry.observer import Observer
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
        start = perf_counter()
        version = version or self._agreed_version
        plan = super().handshake(message, version)
        if isinstance(plan, bytes):
            self._answered(message, version, start)
        return plan

    def modern(self, message: Json) -> bytes | PlainCall | None:
        """Plan an answer; what is answered with that has been observed."""
        start = perf_counter()
        plan = super().modern(message)
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
        bound = self._bound.get((call.name, call.version))
        series, server = self._bind(call) if bound is None else bound
        operation = observer.serve(
            series,
            call.id,
            call.meta,
            None if observer.tracer is None else context.headers.get(_SESSION_HEADER),
            None if context.caller is None else context.caller.name,
            call.name,
            call.arguments,
            server,
        )
        plain = self.writer(call)
        failed = False

        def write(result: Json) -> bytes:
            nonlocal failed
            failed = result["isError"]
            return plain(result)

        try:
            answer, code = await self.run_writing(call, context, write)
        except BaseException:
            operation.end_cancelled()
            raise
        if code:
            operation.end_with_code(code)
        else:
            operation.end(TOOL_ERROR if failed else None)
        return answer, code

    def _bind(self, call: PlainCall) -> tuple[Series, str | None]:
        """What is the same for every call of a tool, until the tools change."""
        tool = self._tools.find(call.name)
        series = self._observer.series("tools/call", call.name, self._peer(call.version))
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
