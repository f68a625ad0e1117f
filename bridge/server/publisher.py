"""Publisher: a ToolBox as an MCP server, in both eras of the protocol, whatever the transport."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from bridge.server.core import ServerCore

if TYPE_CHECKING:
    from bridge.server.sdk_server import SdkServer


class Publisher(ServerCore):
    """A ToolBox, published.

    Args:
        tools: What is published: a ToolBox, whose changes reach the clients, or anything that one takes.
        name: What the server calls itself.
        version: The version of what is published; empty where it has none.
        title: A name for people.
        instructions: What a model should know about the server as a whole.
        page_size: How many tools a page of the list holds at most; None for one page, because many clients read only
            the first.
        policy: How calls and their failures are treated. Whatever it says, the text of an exception that no author
            raised for the model stays on this side, and an unknown tool is an error of the protocol.
        state_keys: Secrets of at least 32 bytes that seal what a client carries between the rounds of one call: the
            first seals, all open. Processes that serve together need the same ones; None for one of this process.
        memory_id_of: Says to which memory a call belongs, given its context. By default, and in the context that it
            gets, that is the caller's name where the caller proved one, else the session's id, else None.
        limits: How much each caller may take; None for as much as there is. What is of requests is `http_app`'s to see.
        max_calls: How many calls of all callers may run or wait at once; None for as many as come.

    Raises:
        DefinitionError: There are no tools in what is published, or one that cannot be made.
        ValueError: The page size, or how many calls there may be, is not positive.
    """

    @cached_property
    def server(self) -> SdkServer:
        """The SDK's server, which any of its transports can run; built, and the SDK imported, on first use."""
        from bridge.server.sdk_server import build_server  # noqa: PLC0415 - the SDK takes most of a second to import

        return build_server(self)
