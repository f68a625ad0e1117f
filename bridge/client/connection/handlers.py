"""Handlers of server requests, in both eras.

A handler gets the request and the context of the call that it belongs to, and returns the answer. A capability is
declared to servers only if it has a handler (MCP, Client Features).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import anyio

from bridge.errors import ToolError, WireError
from bridge.protocol.versions import INVALID_PARAMS, MODERN_VERSIONS, URL_ELICITATION_REQUIRED
from bridge.tools.annotated_checks import check_fields
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, Roots, Sampling, SamplingAnswer, UrlElicitation
from bridge.wire.extension import TASKS, Extensions, extensions_of
from bridge.wire.questions import answer_to_wire, question_from_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.connection.running_call import Call
    from bridge.client.connection.status import Listeners
    from bridge.errors import ServerRefusedError
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

ElicitationHandler = Callable[[Elicitation | UrlElicitation, InvocationContext], Awaitable[ElicitationAnswer]]
SamplingHandler = Callable[[Sampling, InvocationContext], Awaitable[SamplingAnswer]]
RootsHandler = Callable[[InvocationContext], Awaitable[Sequence[Root]]]

COMPLETION_SECONDS = 3.0
"""Seconds without a notification that a page was completed, after which a request is sent again."""
VISIT_SECONDS = 600.0
"""Maximum seconds for which a request is sent again."""
MAX_PAGES = 10
"""Maximum pages that a user is asked to visit for one request."""
_logger = logging.getLogger("bridge.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHandlers:
    """Handlers of server requests; capabilities without a handler are not declared.

    The context is that of the call that the request belongs to, if it is known. In the modern era and over streamable
    HTTP it always is; elsewhere only while all running and recently cancelled calls are of the same remote client.
    Otherwise the context is empty.
    """

    elicitation: ElicitationHandler | None = None
    """Asks the user: a form to fill in, or a page to visit."""
    sampling: SamplingHandler | None = None
    """Requests a completion from the model."""
    sampling_features: Collection[Literal["tools", "context"]] = ()
    """Supported features of sampling: tools in the request, context of servers. They are declared as well."""
    roots: RootsHandler | None = None
    """Returns the root folders."""
    extensions: Extensions = ()
    """Extensions that are declared to servers, or the settings of each by its identifier: `bridge.server.Extension`."""

    def __post_init__(self) -> None:
        check_fields(self)

    def capabilities(self, version: str, further: Mapping[str, Json]) -> Json:
        """Return the capabilities that are declared in a version, with further extensions: those with a handler."""
        is_modern = version in MODERN_VERSIONS
        own = {
            each.id: each.client_settings for each in extensions_of(self.extensions) if is_modern or not each.is_modern
        }
        extensions = {**own, **further}
        if is_modern:
            extensions[TASKS.id] = {}
        declared: Json = {"extensions": extensions} if extensions else {}
        if self.elicitation is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self.sampling is not None:
            declared["sampling"] = {feature: {} for feature in self.sampling_features}
        if self.roots is not None:
            declared["roots"] = {"listChanged": True}
        return declared

    async def notified(self, method: str, params: Json, context: InvocationContext) -> None:
        """Handle a notification of an extension.

        Args:
            method: The method: ``notifications/…``.
            params: The parameters.
            context: Context of the call that it belongs to; empty if that is unknown.
        """
        for each in extensions_of(self.extensions):
            if (handler := each.notifications.get(method)) is not None:
                handler(params, context)

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        """Answer one server request.

        Raises:
            ToolError: There is no handler for it, or the handler refuses.
        """
        match question:
            case Elicitation() | UrlElicitation() if self.elicitation is not None:
                return await self.elicitation(question, context)
            case Sampling() if self.sampling is not None:
                if (question.tools or question.tool_choice) and "tools" not in self.sampling_features:
                    raise ToolError("the model of this client does not support tools")
                return await self.sampling(question, context)
            case Roots() if self.roots is not None:
                return tuple(await self.roots(context))
            case _:
                raise ToolError(f"this client does not support requests of the kind {type(question).__name__}")


class QuestionRefusedError(Exception):
    """A server request cannot be answered; the message may be sent to the server.

    Attributes:
        code: Code of the JSON-RPC error.
        data: Data of the JSON-RPC error.
    """

    def __init__(self, message: str, code: int = INVALID_PARAMS, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


async def answer_question(handlers: ClientHandlers, wire: Mapping[str, Any], context: InvocationContext) -> Json:
    """Answer a server request in MCP's form, ``{"method": …, "params": …}``; returns its result.

    Raises:
        QuestionRefusedError: The request is malformed or unsupported, or the handler failed, which is logged.
    """
    try:
        return answer_to_wire(await handlers.answer(question_from_wire(wire), context))
    except QuestionRefusedError:
        raise
    except (WireError, ToolError) as error:
        raise QuestionRefusedError(str(error)) from error
    except Exception as error:
        _logger.exception("the handler of %r failed", wire.get("method"))
        raise QuestionRefusedError("the handler of the request failed") from error


class UrlElicitations:
    """Pages that a user has to visit before a server answers one request: error -32042 (MCP 2025-11-25, "Elicitation").

    The user is asked once for each page. The request may be sent again when the server has notified of the completion
    of all pages, and every few seconds, since servers need not notify. It was not run before.

    Args:
        handlers: Handlers of the connection, of which one asks the user.
        completions: Listeners for identifiers of completed pages.
        call: The call.
    """

    def __init__(self, handlers: ClientHandlers, completions: Listeners[[str]], call: Call) -> None:
        self._handlers = handlers
        self._completions = completions
        self._call = call
        self._until = anyio.current_time() + VISIT_SECONDS
        self._agreed: set[str] = set()
        self._completed: set[str] = set()
        self._changed = anyio.Event()

    async def visited(self, error: ServerRefusedError) -> bool:
        """Ask the user to visit the pages that an error names, and wait for their completion.

        Returns:
            True if the request may be sent again; False if the error is another one, or the user does not agree.
        """
        asked = _asked_in(error)
        if asked is None or self._handlers.elicitation is None or anyio.current_time() > self._until:
            return False
        end = self._completions.add(self._note_completed)
        try:
            with self._call.asking():
                for page in asked:
                    if page["elicitationId"] in self._agreed:
                        continue
                    if len(self._agreed) == MAX_PAGES or not await self._is_agreed(page):
                        return False
                    self._agreed.add(page["elicitationId"])
                with anyio.move_on_after(COMPLETION_SECONDS):
                    while not self._completed.issuperset(page["elicitationId"] for page in asked):
                        await self._changed.wait()
        finally:
            end()
        return True

    async def _is_agreed(self, page: Json) -> bool:
        question = {"method": "elicitation/create", "params": page}
        try:
            answer = await answer_question(self._handlers, question, self._call.context)
        except QuestionRefusedError:
            return False
        return bool(answer["action"] == "accept")

    def _note_completed(self, elicitation_id: str) -> None:
        self._completed.add(elicitation_id)
        self._changed.set()
        self._changed = anyio.Event()


def _asked_in(error: ServerRefusedError) -> list[Json] | None:
    """Return the pages in an error; None if it is another error, or malformed."""
    data: Any = error.data
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(data, dict):
        return None
    asked = data.get("elicitations")
    if not isinstance(asked, list) or not asked:
        return None
    is_valid = all(
        isinstance(page, dict) and page.get("mode") == "url" and isinstance(page.get("elicitationId"), str)
        for page in asked
    )
    return asked if is_valid else None
