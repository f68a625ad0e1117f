"""Names of OpenTelemetry's semantic conventions for MCP, as of October 2026, and names that these lack.

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
    SERVER_OPERATION_DURATION: "Duration of a received request, until its response was ready.",
    CLIENT_OPERATION_DURATION: "Duration of a sent request, until its response arrived.",
    SERVER_SESSION_DURATION: "Duration of a client's session.",
    CLIENT_SESSION_DURATION: "Duration of a connection to a server.",
}
"""The four metrics of the conventions: histograms, in seconds."""

BUCKETS_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histograms' buckets, as in the conventions."""

METHOD = "mcp.method.name"
TARGETS = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "bridge.resource.name",
}
"""Labels of targets by method. The conventions have a resource's URI on spans only, since there are too many URIs."""
OPERATION = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
STATUS_CODE = "rpc.response.status_code"
PROTOCOL_VERSION = "mcp.protocol.version"
SESSION_ID = "mcp.session.id"
REQUEST_ID = "jsonrpc.request.id"
OWN_REQUEST_ID = "bridge.request.id"
"""Id of a request that this process has made, as in its records; clients use the same ids again."""
TEAM = "bridge.team"
"""The team of an authenticated caller; on metrics and spans."""
CALLER = "enduser.id"
"""The name of an authenticated caller; on spans alone, because there may be any number."""
NETWORK_TRANSPORT = "network.transport"
NETWORK_PROTOCOL = "network.protocol.name"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

UPSTREAM = "bridge.upstream"
"""Name of the configured server."""

IN_FLIGHT = "bridge.calls.in_flight"
SESSIONS = "bridge.sessions"
CONNECTED = "bridge.upstream.connected"
CONNECTS = "bridge.upstream.connects"
RECONNECTS = "bridge.upstream.reconnects"
CHILDREN = "bridge.children"
DRAINING = "bridge.draining"
AUDIT_LOST = "bridge.audit.lost"
REFUSALS = "bridge.http.refusals"
DEFINITION_TOKENS = "bridge.definitions.tokens"
RESULT_TOKENS = "bridge.results.tokens"
SAVED_TOKENS = "bridge.saved.tokens"
TEAM_TOKENS = "bridge.team.tokens"
TEAM_BYTES = "bridge.team.bytes"
TOKENS_OF = "bridge.of"
"""Kind of what was read: ``results`` or ``definitions``."""
SAVED_BY = "bridge.saved.by"
"""Feature that has saved tokens: ``spill``, ``search`` or ``code``."""
TASKS = "bridge.tasks"
TASK_DURATION = "bridge.task.duration"
TASK_STATUS = "bridge.task.status"

HTTP_STATUS = "http.response.status_code"
"""HTTP status of a response, named as in the conventions for HTTP."""
TOOL_ERROR = "tool_error"
"""Error type of a call whose result is an error."""
REFUSED = "refused"
"""Error type of a call that was not run, because its caller is over a limit."""
REFUSAL_CODE = "-32005"
"""The same, if the answer is an error of the protocol."""
CANCELLED = "cancelled"
"""Error type of a cancelled request."""
TASK = "task"
"""Outcome of a call that became a task; not an error."""
INPUT_REQUIRED = "input_required"
"""Outcome of a call whose result asks its client questions; not an error."""
OTHER = "_OTHER"
"""Replacement for an unknown name, which a client may have invented."""

NO_ERRORS = frozenset({INPUT_REQUIRED, TASK})
"""Outcomes beside success that are no errors."""

TOOLS_CALL = "tools/call"
TOOLS_LIST = "tools/list"
LISTEN = "subscriptions/listen"
"""A request that lasts until one side ends it, which is no error."""

METHODS = frozenset(
    {
        "completion/complete", "elicitation/create", "initialize", "logging/setLevel", "notifications/cancelled",
        "notifications/elicitation/complete", "notifications/initialized", "notifications/message",
        "notifications/progress", "notifications/prompts/list_changed", "notifications/resources/list_changed",
        "notifications/resources/updated", "notifications/roots/list_changed", "notifications/tools/list_changed",
        "ping", "prompts/get", "prompts/list", "resources/list", "resources/read", "resources/subscribe",
        "resources/templates/list", "resources/unsubscribe", "roots/list", "sampling/createMessage", "server/discover",
        "subscriptions/listen", "tasks/cancel", "tasks/get", "tasks/update", "tools/call", "tools/list",
    }
)  # fmt: skip
"""Methods of MCP; unknown methods are recorded as `OTHER`."""

_MAX_TRACE_CHARS = {"traceparent": 55, "tracestate": 512, "baggage": 8192}
TRACE_KEYS = frozenset(_MAX_TRACE_CHARS)
"""Keys of the trace context in ``_meta`` of a request (SEP-414; W3C Trace Context, W3C Baggage)."""


def trace_in(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace context of a request, without invalid values, for which OpenTelemetry would raise or log.

    Values are invalid if they are not text, or longer than the W3C's limits.
    """
    return {
        key: meta[key]
        for key in TRACE_KEYS & meta.keys()
        if isinstance(meta[key], str) and len(meta[key]) <= _MAX_TRACE_CHARS[key]
    }
