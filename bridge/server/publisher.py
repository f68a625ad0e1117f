"""Publisher: a ToolBox as an MCP server, for both eras of the protocol and every transport."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from bridge.server.core import ServerCore

if TYPE_CHECKING:
    from bridge.server.sdk_server import SdkServer


class Publisher(ServerCore):
    """An MCP server of a ToolBox.

    Args:
        tools: A ToolBox, whose changes are announced to clients, or anything that a ToolBox takes.
        name: Name of the server.
        version: Version of the server; empty for none.
        title: Display name.
        instructions: Instructions about the server for the model.
        page_size: Maximum number of tools on a page of the list; None for one page, because many clients read only the
            first.
        policy: Policy for calls and their failures. In any case, texts of unexpected exceptions are not sent to
            clients, and an unknown tool is a JSON-RPC error.
        state_keys: Secrets of at least 32 bytes that encrypt the state that a client carries between the rounds of one
            call: the first encrypts, all decrypt. Replicas need the same keys; None for a random key of this process.
        memory_id_of: Returns the memory id of a call, given its context. By default it is the authenticated caller's
            name, else the session's id, else None.
        limits: Limits of each caller; None for none. `http_app` applies those of requests.
        max_calls: Maximum number of calls of all callers that run or wait; None for no maximum.
        tasks: Options for tasks, which calls of tools with ``task=True`` become; None for the defaults.

    Raises:
        DefinitionError: ``tools`` contains no tool, or an invalid one.
        ValueError: The page size or the maximum number of calls is not positive.
    """

    @cached_property
    def server(self) -> SdkServer:
        """The SDK's server, which any of its transports can run; created on first use, which imports the SDK."""
        from bridge.server.sdk_server import build_server  # noqa: PLC0415 - the SDK takes most of a second to import

        return build_server(self)
