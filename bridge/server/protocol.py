"""The protocol's own errors, and its two eras, as plain values: nothing of the SDK.

JSON-RPC 2.0, section 5.1, and MCP 2026-07-28, "Error Codes".
"""

from __future__ import annotations

from typing import Any

from bridge.errors import BridgeError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
MISSING_CAPABILITY = -32021

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Where a request of the modern era says, in ``_meta``, what its client can do."""

LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
"""Where a request of the modern era says, in ``_meta``, from which severity on it wants log messages."""

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
