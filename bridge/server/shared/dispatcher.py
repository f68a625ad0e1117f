"""The SDK's dispatcher, whose questions to the client say which replica waits for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.shared.dispatcher import CallOptions

_SIGN = "/"


class ReplicaDispatcher(JSONRPCDispatcher[TransportContext]):
    """Numbers what it asks with the name of its replica: by itself, each replica would begin at 1.

    Args:
        replica: Its name.
        streams: What it reads and writes, and how, as for the SDK's.
    """

    def __init__(self, replica: str, *streams: Any, **settings: Any) -> None:
        super().__init__(*streams, **settings)
        self._replica = replica
        self._asked = 0

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        """Ask, under a number that no other replica uses."""
        self._asked += 1
        numbered: CallOptions = {"request_id": f"{self._replica}{_SIGN}{self._asked}", **(opts or {})}
        return await super().send_raw_request(method, params, numbered, **related)


def replica_in(number: object) -> str | None:
    """Which replica asked under a number; None where it is no number of ours."""
    if not isinstance(number, str):
        return None
    replica, sign, _ = number.partition(_SIGN)
    return replica if sign else None
