"""Revisions of the protocol, its two eras, error codes, and the keys of ``_meta`` (MCP 2025-11-25 and 2026-07-28)."""

from __future__ import annotations

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
REQUEST_TIMEOUT = -32001
URL_ELICITATION_REQUIRED = -32042
REQUEST_CANCELLED = -32800
NOT_FOUND = -32011
"""Code of the events extension (SEP-3415): there is no such event or subscription; ``kind`` in its data says which."""
FORBIDDEN = -32012
"""Code of the events extension: the caller may not have the events, or is not authenticated."""
RESOURCE_EXHAUSTED = -32013
"""Code of the events extension: too many subscriptions; ``limit`` in its data names the limit."""
UNSUPPORTED = -32014
"""Code of the events extension: the events are not delivered in this way."""
CALLBACK_FAILED = -32015
"""Code of the events extension: the callback did not verify a subscription; ``reason`` in its data says why."""

CONNECTION_CLOSED = -32000
"""Code of the error for requests that are under way when their connection or session ends, as in the SDK."""
LIMIT_EXCEEDED = -32005
"""Code of errors about limits; ``retryAfterSeconds`` in their data is the time after which to try again."""
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Key in ``_meta`` of a modern request: the client's capabilities."""
PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Key in ``_meta`` of a modern request: the protocol version."""
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
"""Key in ``_meta`` of a modern request: the client's name and version."""
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
"""Key in ``_meta`` of a modern result: the server's name and version."""
SUBSCRIPTION_ID_KEY = "io.modelcontextprotocol/subscriptionId"
"""Key in ``_meta`` of a notification: the ID of the ``subscriptions/listen`` that it belongs to."""
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
"""Key in ``_meta`` of a modern request: the minimum severity of log messages."""
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Versions of the handshake era, oldest first."""
MODERN_VERSIONS = frozenset({"2026-07-28"})
"""Versions of the modern era, in which requests are independent of one another."""
LATEST_MODERN_VERSION = "2026-07-28"
