"""The fast path: answers plain requests without the SDK, and leaves to the SDK all that it cannot prove plain.

    message ─> plan ─> bytes            the whole answer
                  ├──> PlainCall        a tool to run; its answer comes from `run`
                  ╰──> None             the SDK's: it knows what is right, this module only what is plain

Functions over parsed messages: no I/O, no transport, nothing of the SDK; stdio and HTTP ask the same ones. Plain are
``tools/call`` of a tool that does not talk back, ``tools/list``, ``ping``, ``server/discover`` and ``initialize``, with
nothing in them that this module does not know. What it answers is what the SDK answers; a differential test sees to it.
Clauses: MCP 2025-11-25 and 2026-07-28, "Basic protocol", "Lifecycle", "Tools"; JSON-RPC 2.0.
"""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.server.auth.access import EVERYTHING
from bridge.server.protocol import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    HANDSHAKE_VERSIONS,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    MODERN_VERSIONS,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    ProtocolError,
    error_message,
    result_message,
    write_result,
)
from bridge.server.tool_list import MAX_VIEWS
from bridge.telemetry.conventions import TRACE_KEYS
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.protocol import MessageId
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

_REQUEST = frozenset({"jsonrpc", "id", "method", "params"})

_CALL = frozenset({"name", "arguments", "_meta"})

_LIST = frozenset({"cursor", "_meta"})

_ENVELOPE = frozenset({PROTOCOL_VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, "progressToken"}) | TRACE_KEYS

_OF_ONE_REQUEST = TRACE_KEYS | {"progressToken"}

_INITIALIZE = frozenset({"protocolVersion", "capabilities", "clientInfo"})

_IMPLEMENTATION = frozenset({"name", "version", "title", "description", "websiteUrl"})

UNSERVED = frozenset({"resources/list", "resources/templates/list", "prompts/list"})
"""Methods of the protocol that ask for nothing and that nothing here serves: clients try them at every start."""


@dataclass(slots=True)
class PlainCall:
    """A ``tools/call`` that was proven plain; nobody changes it. Frozen, it would be made at twice the cost."""

    id: MessageId
    name: str
    arguments: Mapping[str, Any]
    modern: bool
    """Whether the client speaks the 2026-07-28 revision."""
    capabilities: Mapping[str, Any]
    """What the client declared with the call; empty in the handshake era."""
    version: str = ""
    """The revision that is spoken; empty where it is not known."""
    meta: Mapping[str, Any] | None = None
    """What the call carries in ``_meta``."""


class FastPath:
    """Plans the answers of one publisher.

    Args:
        publisher: What is served.
    """

    def __init__(self, publisher: ServerCore) -> None:
        self._publisher = publisher
        self._access = EVERYTHING
        self._limited: dict[Access, FastPath] = {}
        self._stamp: Json = {SERVER_INFO_KEY: publisher.implementation}
        self._plain_envelope: Json | None = None
        self._lists: dict[bool, tuple[Json, bytes]] = {}
        self._discovery: bytes | None = None
        self._agreed_version = ""
        policy = publisher.policy
        # Callbacks and handlers get a context, and may talk back through it.
        self.is_on = not (policy.before or policy.after or policy.on_arguments_error or policy.on_execution_error)

    def limited_to(self, access: Access) -> FastPath:
        """The same for callers of some access; the one kept for them, if it is."""
        if access is self._access:
            return self
        plans = self._limited.get(access)
        if plans is None:
            if len(self._limited) >= MAX_VIEWS:
                del self._limited[next(iter(self._limited))]
            plans = self._limited[access] = copy(self)
            plans._access, plans._limited, plans._lists = access, {}, {}  # noqa: SLF001 - of this very class
        return plans

    def handshake(self, message: Json, version: str = "") -> bytes | PlainCall | None:
        """Plan the answer to a request of the handshake era, after its handshake.

        Args:
            message: What `bridge.server.protocol.read_message` found to be a request.
            version: The revision that was agreed on; empty for that of `initialize`, if it was answered here.
        """
        params = message.get("params")
        if not (self._is_plain(message) and (params is None or _is_plain_meta(params.get("_meta")))):
            return None
        version = version or self._agreed_version
        if message["method"] == "tools/call":
            return None if params is None else self._call(message["id"], params, {}, version, modern=False)
        return self._handshake_at_once(message, version)

    def modern(self, message: Json) -> bytes | PlainCall | None:
        """Plan the answer to a request of the 2026-07-28 revision; of its HTTP headers it knows nothing.

        Args:
            message: What `bridge.server.protocol.read_message` found to be a request.
        """
        params = message.get("params")
        if not (params and self._is_plain(message) and self._is_plain_envelope(params.get("_meta"))):
            return None
        if message["method"] == "tools/call":
            meta = params["_meta"]
            return self._call(message["id"], params, meta[CAPABILITIES_KEY], meta[PROTOCOL_VERSION_KEY], modern=True)
        return self._modern_at_once(message)

    def initialize(self, message: Json) -> bytes | None:
        """Plan the answer to ``initialize``, which opens a connection of the handshake era."""
        params = message.get("params")
        if not (params and params.keys() == _INITIALIZE and self._is_plain(message)):
            return None
        requested = params["protocolVersion"]
        if not (
            type(requested) is str
            and _are_plain_capabilities(params["capabilities"])
            and _is_plain_implementation(params["clientInfo"])
        ):
            return None
        publisher, self._agreed_version = self._publisher, agreed_version(requested)
        result = {
            "protocolVersion": self._agreed_version,
            "capabilities": publisher.capabilities,
            "serverInfo": publisher.implementation,
        }
        if publisher.instructions is not None:
            result["instructions"] = publisher.instructions
        return result_message(message["id"], to_json(result))

    async def run(self, call: PlainCall, context: InvocationContext) -> tuple[bytes, int]:
        """Run a call, which never raises but to be cancelled.

        Returns:
            The whole answer, and the code of its error, 0 where it is a result.
        """
        write = self._write_stamped if call.modern else write_result
        try:
            result = await self._publisher.call(
                call.name, call.arguments, context, write, modern=call.modern, access=self._access
            )
            return result_message(call.id, result), 0
        except (ProtocolError, InputRequired) as error:
            return self._refusal(call, error)

    def _refusal(self, call: PlainCall, error: ProtocolError | InputRequired) -> tuple[bytes, int]:
        if isinstance(error, ProtocolError):
            told = {"code": error.code, "message": error.message}
            return error_message(call.id, told if error.data is None else told | {"data": error.data}), error.code
        words = "the tool %r asked another round, though it had promised not to talk back"
        _logger.error(words, call.name, exc_info=error)
        told = {"code": INTERNAL_ERROR, "message": f"the call of {call.name!r} failed; the server's log says why"}
        return error_message(call.id, told), INTERNAL_ERROR

    def _write_stamped(self, result: Json) -> bytes:
        """A result of the modern era, which says who made it; what its author said of that stands."""
        meta = result.get("_meta")
        if not meta:
            result["_meta"] = self._stamp
        elif meta.get(SERVER_INFO_KEY) is None:
            result["_meta"] = {**meta, **self._stamp}
        return write_result(result)

    def _handshake_at_once(self, message: Json, version: str) -> bytes | None:  # noqa: ARG002 - for who observes
        """The answer to what calls no tool."""
        method, params = message["method"], message.get("params")
        match method:
            case "tools/list":
                return self._list(message["id"], params, modern=False)
            case "ping" if not params:
                return result_message(message["id"], b"{}")
            case _ if method in UNSERVED and not params:
                error = {"code": METHOD_NOT_FOUND, "message": "Method not found", "data": method}
                return error_message(message["id"], error)
        return None

    def _modern_at_once(self, message: Json) -> bytes | None:
        """The answer to what calls no tool."""
        params = message["params"]
        match message["method"]:
            case "tools/list":
                return self._list(message["id"], params, modern=True)
            case "server/discover" if len(params) == 1:
                return result_message(message["id"], self._discover())
        return None

    def _call(
        self, request: MessageId, params: Json, capabilities: Mapping[str, Any], version: str, *, modern: bool
    ) -> PlainCall | None:
        name, arguments = params.get("name"), params.get("arguments")
        # What else may stand there asks for more: a task, the answers to questions, the state of an earlier round.
        if not (params.keys() <= _CALL and type(name) is str and (arguments is None or type(arguments) is dict)):
            return None
        view = self._publisher.views.of(self._access)
        tool = view.tools.find(name)
        # An unknown name is an error of the protocol; a tool that talks back needs a session to talk through; a
        # parameter that is mirrored in a header has to be compared with it.
        if tool is None or tool.interactive or view.catalog.header_schema(name) is not None:
            return None
        if self._access.missing(name):  # HTTP says so, in a status of its own
            return None
        return PlainCall(request, name, arguments or {}, modern, capabilities, version, params.get("_meta"))

    def _list(self, request: MessageId, params: Json | None, *, modern: bool) -> bytes | None:
        if params and not (params.keys() <= _LIST and params.get("cursor") is None):
            return None
        page = self._publisher.views.of(self._access).catalog.page(modern=modern)
        known = self._lists.get(modern)
        if known is None or known[0] is not page:
            whole = {**page, "_meta": self._stamp} if modern else page
            known = self._lists[modern] = page, write_result(whole)
        return result_message(request, known[1])

    def _discover(self) -> bytes:
        if self._discovery is None:
            self._discovery = write_result(self._publisher.discovery | {"_meta": self._stamp})
        return self._discovery

    def _is_plain(self, message: Json) -> bool:
        """Whether nothing stands in a request beside what JSON-RPC says; an id may hold what only some can write."""
        request = message["id"]
        return self.is_on and message.keys() <= _REQUEST and (type(request) is int or request.isascii())

    def _is_plain_envelope(self, meta: object) -> bool:
        """Whether ``_meta`` is what every request of the modern era carries, and nothing more."""
        if meta == self._plain_envelope and meta is not None:
            return True
        if type(meta) is dict and "traceparent" in meta and _has_plain_trace(meta):
            meta = {key: value for key, value in meta.items() if key not in TRACE_KEYS}
            if meta == self._plain_envelope:
                return True
        if not (
            type(meta) is dict
            and meta.keys() <= _ENVELOPE
            and type(meta.get(PROTOCOL_VERSION_KEY)) is str
            and meta[PROTOCOL_VERSION_KEY] in MODERN_VERSIONS
            and _are_plain_capabilities(meta.get(CAPABILITIES_KEY))
            and (meta.get(CLIENT_INFO_KEY) is None or _is_plain_implementation(meta[CLIENT_INFO_KEY]))
            and _has_token(meta)
            and _has_plain_trace(meta)
        ):
            return False
        if _OF_ONE_REQUEST.isdisjoint(meta):  # a client says the same of itself every time
            self._plain_envelope = meta
        return True


def agreed_version(requested: str) -> str:
    """The revision that is spoken with a client that asks for one (Lifecycle, "Version Negotiation")."""
    return requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]


def unplanned(request: Json, error: Exception) -> bytes:
    """The answer to a request that cannot be planned by a mistake on this side, which is logged."""
    _logger.error("the request %r could not be answered", request["method"], exc_info=error)
    told = f"the request {request['method']!r} failed; the server's log says why"
    return error_message(request["id"], {"code": INTERNAL_ERROR, "message": told})


def _is_plain_meta(meta: object) -> bool:
    """A progress token, for which a tool that does not talk back has no use, and a trace, at most."""
    return meta is None or (
        type(meta) is dict and meta.keys() <= _OF_ONE_REQUEST and _has_token(meta) and _has_plain_trace(meta)
    )


def _has_token(meta: Json) -> bool:
    return type(meta.get("progressToken", "")) in {int, str}


def _has_plain_trace(meta: Json) -> bool:
    return TRACE_KEYS.isdisjoint(meta) or all(type(meta.get(key, "")) is str for key in TRACE_KEYS)


def _are_plain_capabilities(value: object) -> bool:
    """Objects of objects, as every declared capability is; ``roots`` says a little more."""
    return type(value) is dict and all(
        type(capability) is dict
        and all(
            type(detail) is dict or (name == "roots" and detail_name == "listChanged" and type(detail) is bool)
            for detail_name, detail in capability.items()
        )
        for name, capability in value.items()
    )


def _is_plain_implementation(value: object) -> bool:
    return (
        type(value) is dict
        and {"name", "version"} <= value.keys() <= _IMPLEMENTATION
        and all(type(detail) is str for detail in value.values())
    )
