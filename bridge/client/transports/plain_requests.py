"""Plain requests: requests of an open session that are sent without the SDK's session.

    plain? ──> no: the SDK sends the request
      ╰──> PlainRequest ──> the transport sends its text ──> result, or the server's error

It is decided before anything is sent. This module has no I/O, and is shared by streamable HTTP (`plain_http`) and stdio
(`plain_stdio`).
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from opentelemetry.context import get_current
from opentelemetry.propagate import inject
from opentelemetry.trace import NoOpTracer, ProxyTracer, get_tracer_provider
from pydantic_core import to_json

from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.shared.dispatcher import ProgressFnT

    from bridge.client.transports.channel import OutgoingRequest
    from bridge.types import Json

_FIRST_ID = 2**30
"""First request ID, above those of the SDK's session, which counts from 1."""
_STAMPS = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)
_PLAIN_PARAMS = 2
"""Parameters of a call with only a name and arguments."""
_MAX_TEMPLATES = 1000
_MAX_TEMPLATE_BYTES = 4096
"""Maximum bytes of a cached template, which the capabilities of callers make longer."""
_BY_SDK = frozenset(
    {
        *("initialize", "server/discover", "subscriptions/listen"),
        *("tools/list", "resources/list", "resources/templates/list", "prompts/list"),
    }
)


class PlainRequest(NamedTuple):
    """Request that is sent."""

    id: int
    """JSON-RPC ID, and token of its progress notifications."""
    method: str
    """MCP method."""
    version: str
    """Protocol version of its session."""
    on_progress: ProgressFnT | None
    """Receives progress notifications."""
    text: bytes
    """The message."""
    is_passed_on: bool
    """As of its `OutgoingRequest`."""


class PlainRequests:
    """Writes the plain requests of one session.

    Attributes:
        version: Protocol version of the session; empty before the handshake.
    """

    def __init__(self) -> None:
        self.version = ""
        self._stamps: Json = {}
        self._stamps_text = b""
        self._templates: dict[tuple[str, bytes], bytes] = {}
        """Calls that report progress, without ID, arguments and progress token, by their tools and stamps."""
        self._ids = count(_FIRST_ID)
        self._tracers = get_tracer_provider()

    def learn(self, version: str, params: Mapping[str, Any] | None) -> None:
        """Take the entries of ``_meta`` that each request of the modern era has from a request that the SDK sends."""
        meta = (params or {}).get("_meta") or {}
        self.version = version
        self._stamps = {key: meta[key] for key in _STAMPS if key in meta}
        self._stamps_text = to_json(self._stamps)[1:-1]
        self._templates.clear()

    def write(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressFnT | None
    ) -> PlainRequest | None:
        """Write a request; None if the SDK must send it (`RequestSender`)."""
        if not self.version or method in _BY_SDK or self._is_traced_by_sdk():
            return None
        id_ = next(self._ids)
        arguments = outgoing.arguments if len(params) == _PLAIN_PARAMS else None
        stamps, stamps_text = self._stamps, self._stamps_text
        if outgoing.capabilities is not None and CLIENT_CAPABILITIES_META_KEY in stamps:
            stamps = stamps | {CLIENT_CAPABILITIES_META_KEY: outgoing.capabilities}
            stamps_text = to_json(stamps, inf_nan_mode="null")[1:-1]
        if arguments is not None and on_progress is not None and not get_current():
            key = params["name"], stamps_text
            text = (self._templates.get(key) or self._template(*key)) % (id_, arguments, id_)
            return PlainRequest(id_, method, self.version, on_progress, text, outgoing.is_passed_on)
        if arguments is not None:
            members = b'"name":%b,"arguments":%b' % (to_json(params["name"]), arguments)
        else:
            members = to_json({key: params[key] for key in params if key != "_meta"})[1:-1]
        if meta := _meta(params.get("_meta"), stamps, stamps_text, id_ if on_progress is not None else None):
            members += b'%b"_meta":{%b}' % (b"," if members else b"", meta)
        written = b',"params":{%b}' % members if members else b""
        text = b'{"jsonrpc":"2.0","id":%d,"method":"%b"%b}' % (id_, method.encode(), written)
        return PlainRequest(id_, method, self.version, on_progress, text, outgoing.is_passed_on)

    def _template(self, name: str, stamps: bytes) -> bytes:
        """Call of a tool, with places for its ID, arguments and progress token."""
        named, stamped = to_json(name).replace(b"%", b"%%"), (stamps and stamps + b",").replace(b"%", b"%%")
        params = b'{"name":%b,"arguments":%%b,"_meta":{%b"progressToken":%%d}}' % (named, stamped)
        template = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' + params + b"}"
        if len(template) <= _MAX_TEMPLATE_BYTES:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            self._templates[name, stamps] = template
        return template

    def _is_traced_by_sdk(self) -> bool:
        """True if a program traces its requests, and this library does not: the SDK makes the spans."""
        if switch.observer() is not None:
            return False
        # `get_tracer_provider` looks into the environment; its result knows a provider that is set later.
        return not isinstance(self._tracers.get_tracer("bridge"), ProxyTracer | NoOpTracer)


def _meta(given: Mapping[str, Any] | None, stamps: Json, text: bytes, token: int | None) -> bytes:
    """Members of ``_meta``: the given ones, the stamps, whose text is known, the progress token, the current trace."""
    if given or get_current():
        meta = {**(given or {}), **stamps}
        meta.pop("progressToken", None)
        inject(meta)
        text = to_json(meta)[1:-1]
    if token is None:
        return text
    return b'%b%b"progressToken":%d' % (text, b"," if text else b"", token)
