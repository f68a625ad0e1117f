"""Names of OpenTelemetry's semantic conventions for MCP, as of October 2026, and those that they do not have.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER_OPERATION_DURATION = "mcp.server.operation.duration"
CLIENT_OPERATION_DURATION = "mcp.client.operation.duration"
SERVER_SESSION_DURATION = "mcp.server.session.duration"
CLIENT_SESSION_DURATION = "mcp.client.session.duration"

DESCRIPTIONS = {
    SERVER_OPERATION_DURATION: "How long a request took, from when it was received until its answer was ready.",
    CLIENT_OPERATION_DURATION: "How long a request took that was sent from here, until its answer was there.",
    SERVER_SESSION_DURATION: "How long a client's session lasted.",
    CLIENT_SESSION_DURATION: "How long a connection to a server lasted.",
}
"""The four metrics of the conventions: histograms, in seconds."""

BUCKETS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds that the conventions want of all four."""

METHOD = "mcp.method.name"
TOOL = "gen_ai.tool.name"
OPERATION = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
STATUS_CODE = "rpc.response.status_code"
PROTOCOL_VERSION = "mcp.protocol.version"
SESSION_ID = "mcp.session.id"
REQUEST_ID = "jsonrpc.request.id"
NETWORK_TRANSPORT = "network.transport"
NETWORK_PROTOCOL = "network.protocol.name"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

UPSTREAM = "bridge.upstream"
"""Which configured server is meant; the conventions have no name for that."""

IN_FLIGHT = "bridge.calls.in_flight"
SESSIONS = "bridge.sessions"
CONNECTED = "bridge.upstream.connected"
CONNECTS = "bridge.upstream.connects"
RECONNECTS = "bridge.upstream.reconnects"
CHILDREN = "bridge.children"
DRAINING = "bridge.draining"
AUDIT_LOST = "bridge.audit.lost"
REFUSALS = "bridge.http.refusals"

HTTP_STATUS = "http.response.status_code"
"""The status of an answer over HTTP, as the conventions for HTTP call it."""

TOOL_ERROR = "tool_error"
"""The error type of a call whose result says that the tool failed."""
CANCELLED = "cancelled"
"""The error type of what its caller no longer wanted."""
INPUT_REQUIRED = "input_required"
"""What came of a call whose result asks its client something: no error, and no success yet."""
OTHER = "_OTHER"
"""What stands for a name that anybody may have made up."""

TOOLS_CALL = "tools/call"

METHODS = frozenset(
    {
        "completion/complete", "elicitation/create", "initialize", "logging/setLevel", "notifications/cancelled",
        "notifications/elicitation/complete", "notifications/initialized", "notifications/message",
        "notifications/progress", "notifications/prompts/list_changed", "notifications/resources/list_changed",
        "notifications/resources/updated", "notifications/roots/list_changed", "notifications/tools/list_changed",
        "ping", "prompts/get", "prompts/list", "resources/list", "resources/read", "resources/subscribe",
        "resources/templates/list", "resources/unsubscribe", "roots/list", "sampling/createMessage", "server/discover",
        "subscriptions/listen", "tools/call", "tools/list",
    }
)  # fmt: skip
"""The methods of MCP; any other that no server here has is `OTHER`."""

TRACE_KEYS = frozenset({"traceparent", "tracestate", "baggage"})
"""Where a request carries its trace in ``_meta`` (SEP-414; W3C Trace Context, W3C Baggage)."""

_MAX_TRACE_CHARS = {"traceparent": 55, "tracestate": 512, "baggage": 8192}


def trace_in(meta: Mapping[str, Any]) -> dict[str, str]:
    """The trace that a request carries, without values that are no text or longer than the W3C's limits.

    OpenTelemetry raises for some of these values, and logs others whole.

    Args:
        meta: The ``_meta`` of the request.
    """
    return {
        key: meta[key]
        for key in TRACE_KEYS & meta.keys()
        if isinstance(meta[key], str) and len(meta[key]) <= _MAX_TRACE_CHARS[key]
    }
