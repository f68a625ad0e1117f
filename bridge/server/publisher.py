"""Publisher: a ToolBox as an MCP server, for both eras of the protocol and every transport."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from bridge.protocol.messages import MalformedMessageError, malformed_message_error, read_message
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.connection import StreamConnection
from bridge.server.core import ServerCore
from bridge.server.exchange import LocalOrigin
from bridge.server.lifespans import lifespans_open
from bridge.server.observed import dispatch_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bridge.protocol.messages import MessageId
    from bridge.server.dispatch import Dispatch


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
        lifespan: Lifespan of the server: a `bridge.Lifespan`, or a function for one. Its value is
            ``InvocationContext.lifespan`` in functions of modules without a lifespan.

    Raises:
        DefinitionError: ``tools`` contains no tool, or an invalid one, or ``lifespan`` is none.
        ValueError: The page size or the maximum number of calls is not positive.
    """

    @cached_property
    def _dispatch(self) -> Dispatch:
        return dispatch_of(self)

    @asynccontextmanager
    async def connected(
        self, write: Callable[[bytes, MessageId | None], None], drained: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Callable[[bytes], None]]:
        """Serve a client in this process; yields a function that receives its messages.

        A message is handled with the context variables of its sender, such as the authenticated caller.

        Args:
            write: Receives each message of the server, and the id of the request to which it is related; None for none.
            drained: Waits while the client receives no further notifications and questions.
        """

        def write_unrelated(message: bytes) -> None:
            write(message, None)

        def receive(text: bytes) -> None:
            try:
                message = read_message(text)
            except MalformedMessageError as error:
                write_unrelated(malformed_message_error(error))
                return
            if message is not None:
                connection.receive(message, LocalOrigin(access_of_request(), caller_of_request()))

        origin = LocalOrigin(access_of_request(), caller_of_request())
        connection = StreamConnection(self, self._dispatch, origin, write_unrelated, drained, write_related=write)
        async with lifespans_open(self.features, self.lifespan), connection.running():
            yield receive
