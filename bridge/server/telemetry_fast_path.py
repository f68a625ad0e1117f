"""The fast path while somebody observes: the same plans and answers, each heard of."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from bridge.server.fast_path import UNSERVED, FastPath, answer, write_result
from bridge.server.protocol import METHOD_NOT_FOUND, PROTOCOL_VERSION_KEY, ProtocolError
from bridge.telemetry import switch
from bridge.telemetry.conventions import CANCELLED, TOOL_ERROR, TOOLS_CALL
from bridge.telemetry.measures import Peer
from bridge.telemetry.records import MAX_KINDS, id_seen, names_seen
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from bridge.server.fast_path import PlainCall
    from bridge.server.publisher import Publisher
    from bridge.telemetry.measures import Series
    from bridge.telemetry.observer import Observer
    from bridge.telemetry.records import Words
    from bridge.tools.context import InvocationContext
    from bridge.tools.json_reading import Json

    Kind = tuple[str, str, str | None, tuple[str, ...]]
    """The tool that is called, the revision that is spoken, who calls, and the names of the arguments."""
    Known = tuple[Series, str | None, Words | None]
    """Where calls of a kind are counted, the server behind this one that has the tool, and what records say of them."""

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
        self._kinds: dict[Kind, Known] = {}
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
        """Run a call, from its beginning to its answer observed."""
        observer, caller = self._observer, context.caller
        names = tuple(call.arguments) if observer.sinks else ()
        kind = call.name, call.version, None if caller is None else caller.name, names
        series, server, words = self._kinds.get(kind) or self._known(kind, call.arguments)
        if observer.tracer is not None and (server is not None or observer.tracer.begins(call.meta)):
            return await self._run_traced(call, context, series, words, is_drawn=server is None)
        observer.in_flight += 1
        error_type, code = None, None
        start = perf_counter()
        try:
            write = self._heard_stamped if call.modern else _heard
            written, failed = await self._publisher.call(
                call.name, call.arguments, context, write, modern=call.modern, access=self._access
            )
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
            request_id = call.id if type(call.id) is int else id_seen(call.id)
            observer.ended.append((series, start, end, error_type, code, words, request_id, None))
            if observer.is_settled:
                observer.settle_soon()

    async def _run_traced(
        self, call: PlainCall, context: InvocationContext, series: Series, words: Words | None, *, is_drawn: bool
    ) -> tuple[bytes, int]:
        session_id = context.headers.get(_SESSION_HEADER)
        operation = self._observer.serve(series, call.id, call.meta, session_id, words, is_drawn=is_drawn)
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

    def _known(self, kind: Kind, arguments: Mapping[str, Any]) -> Known:
        """What is the same for every call of a kind, until the tools change."""
        called, version, caller, names = kind
        observer, tool = self._observer, self._tools.find(called)
        series = observer.series(TOOLS_CALL, called, self._peer(version))
        server = None if tool is None else tool.server
        known = series, server, observer.words(series, called, server, caller, arguments)
        if not observer.shows_arguments and names_seen(names) == names:
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            self._kinds[kind] = known
        return known

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
                METHOD_NOT_FOUND if method in UNSERVED else 0,
            )
        return plan


def _heard(result: Json) -> tuple[bytes, bool]:
    """A result as JSON, and whether it says that the tool failed."""
    return write_result(result), result["isError"]
