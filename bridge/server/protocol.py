"""The protocol's own errors, and its two eras, as plain values: nothing of the SDK.

JSON-RPC 2.0, section 5.1, and MCP 2026-07-28, "Error Codes".
"""

from __future__ import annotations

from typing import Any

from bridge.errors import BridgeError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
MISSING_CAPABILITY = -32021
URL_ELICITATION_REQUIRED = -32042
REQUEST_CANCELLED = -32800
CONNECTION_CLOSED = -32000
"""The code by which the SDK answers calls that run when a connection ends."""
LIMIT_EXCEEDED = -32005
"""More is asked for than there is room for now; the error's data says in ``retryAfterSeconds`` when to try again."""

HTTP_STATUS = {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400, MISSING_CAPABILITY: 400}
"""With which HTTP status an error answers in the modern era; every other one of a handler with 200."""

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Where a request of the modern era says, in ``_meta``, what its client can do."""

PROTOCOL_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Where a request of the modern era says, in ``_meta``, which revision it speaks."""

CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
"""Where a request of the modern era may say, in ``_meta``, which client sent it."""

SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
"""Where a result of the modern era says, in ``_meta``, which server made it."""

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
"""Where a request of the modern era says, in ``_meta``, from which severity on it wants log messages."""

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with a handshake, oldest first."""

MODERN_VERSIONS = frozenset({"2026-07-28"})
"""The revisions in which every request stands alone; all others begin with a handshake."""


class ProtocolError(BridgeError):
    """A request that is answered by a JSON-RPC error instead of a result.

    Attributes:
        code: The error's code.
        message: What is wrong, fit for the client.
        data: More about it, as JSON; None where there is no more.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class CallRefused(BaseException):
    """Ends a running call with a `ProtocolError`; a tool's ``except Exception`` does not see it."""

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(str(error))
        self.error = error
