"""Questions to callers for a credential that only they can give: a link to a page, in the form of each protocol era.

2026-07-28   input_required with a URL elicitation; the repeated request waits for the credential
2025-11-25   error -32042 with the elicitation; notifications/elicitation/complete, when the credential is there
others, and clients without URL elicitation: an error result for the model that contains the link
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from bridge.errors import ToolError
from bridge.gateway.credentials.errors import CredentialNeededError, CredentialStoreError
from bridge.gateway.credentials.grants import CallerGrant
from bridge.gateway.credentials.store import CredentialKey
from bridge.portal import start_detached
from bridge.protocol.messages import CallRefused, ProtocolError, notification
from bridge.protocol.session import Session
from bridge.protocol.versions import MODERN_VERSIONS, URL_ELICITATION_REQUIRED
from bridge.server.channel import missing_capability
from bridge.tools.questions import ElicitationAnswer, InputRequired, Resumption, UrlElicitation
from bridge.wire.questions import question_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.gateway.credentials.broker import CredentialBroker
    from bridge.gateway.credentials.links import Link, Links
    from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.context import InvocationContext

WAIT_SECONDS = 25.0
"""Seconds for which a repeated request waits for the credential, before the client is asked again."""
MAX_ROUNDS = 10
"""Maximum questions for credentials during one request."""

_MAX_SCOPES = 10
_MAX_SCOPE_CHARS = 100
_PENDING = "connecting"
_SINCE_URL_ELICITATION = "2025-11-25"


@dataclass(frozen=True, slots=True)
class AskingExecutor:
    """Executor that asks its caller for the credential that a request needs, and then runs the request."""

    executor: Any
    """Runs the request on behalf of a caller of the gateway: a `bridge.gateway.proxy.Proxy`."""
    questions: CredentialQuestions

    @property
    def grant(self) -> str | None:
        """Way in which the credentials of callers are obtained; None for an executor without one."""
        return getattr(self.executor, "grant", None)

    async def execute(
        self, request: ToolExecutionRequest, context: InvocationContext, *sent: object
    ) -> ToolExecutionResult:
        """Run a request, of which ``sent`` is what a direct executor has sent already.

        Raises:
            InputRequired: The caller is asked, and answers with its next request (2026-07-28).
            CallRefused: The caller is asked, and repeats the request later (2025-11-25).
            ToolError: The caller refuses, or its client cannot open a link; the message contains the link then.
        """
        if context.resumption is not None:
            await self.questions.resume(context)
        for _ in range(MAX_ROUNDS):
            try:
                result: ToolExecutionResult = await self.executor.execute(request, context, *sent)
            except CredentialNeededError as needed:
                await self.questions.ask(needed, context)
                sent = ()
            else:
                return result
        raise ToolError("the server did not accept any of the credentials that you gave")


class AskingToolExecutor(AskingExecutor):
    """Executor of a tool, which may be called at once: a `bridge.server.forwarded.ForwardingExecutor`."""

    __slots__ = ()
    sends_at_once: ClassVar[bool] = True

    def begin(self, *arguments: Any) -> Any:
        """Send a call at once; see `bridge.server.forwarded.ForwardingExecutor`."""
        return self.executor.begin(*arguments)


class CredentialQuestions:
    """Asks callers for credentials.

    Args:
        broker: The credentials.
        links: Makes links.
        base_for: Returns the gateway's public URL for a caller; raises `ToolError` if it is not known.
        wait_seconds: Seconds for which a repeated request waits for a credential.
    """

    def __init__(
        self,
        broker: CredentialBroker,
        links: Links,
        base_for: Callable[[InvocationContext], str],
        *,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._broker = broker
        self._links = links
        self._base_for = base_for
        self.wait_seconds = wait_seconds
        self._waiting: dict[tuple[Session, str], anyio.CancelScope] = {}
        """Tasks that notify a session of a completed link, by session and the link's identifier."""

    def close(self) -> None:
        """End the waiting of `notifications/elicitation/complete`."""
        for scope in self._waiting.values():
            scope.cancel()

    async def ask(self, needed: CredentialNeededError, context: InvocationContext) -> None:
        """Ask the caller for a credential, and return when it is there.

        Raises:
            InputRequired: The answer comes with the caller's next request.
            CallRefused: The client opens the link, and repeats the request.
            ToolError: The caller refuses, or the client cannot open links.
        """
        try:
            base, after = self._base_for(context), await self._made_at(needed.key)
            link = await self._links.make(needed.key, needed.scope)
        except (ToolError, CredentialStoreError) as error:
            raise ToolError(f"{needed.brief}; {error}") from needed
        url, reason = f"{base}/connect/link/{link.token}", self._reason(needed)
        question = UrlElicitation(reason, url, link.id)
        if missing_capability(question, context.client_capabilities) is not None:
            raise ToolError(self._in_words(reason, url))
        if context.protocol_version in MODERN_VERSIONS:
            await self._ask_in_rounds(UrlElicitation(reason, url), needed, after, context)
        elif context.protocol_version >= _SINCE_URL_ELICITATION:
            if isinstance(session := context.peer, Session):
                self._notify_when_there(session, link, after)
            data = {"elicitations": [question_to_wire(question)["params"]]}
            raise CallRefused(ProtocolError(URL_ELICITATION_REQUIRED, reason, data))
        else:
            raise ToolError(self._in_words(reason, url))

    async def _ask_in_rounds(
        self, question: UrlElicitation, needed: CredentialNeededError, after: float, context: InvocationContext
    ) -> None:
        name = f"connect-{needed.key.server}"
        try:
            answers = await context.ask({name: question})
        except InputRequired as waiting:
            before = context.resumption
            state = {"name": name, "server": needed.key.server, "after": after}
            if before is not None:
                state |= {"state": before.state, "answers": dict(before.answers)}
            raise InputRequired(waiting.questions, {_PENDING: state}) from None
        answer = answers[name]
        assert isinstance(answer, ElicitationAnswer)
        await self._answered(answer.action, needed.key, after)

    async def resume(self, context: InvocationContext) -> None:
        """Wait for the credential that the caller was asked for in the round before, if any.

        Raises:
            ToolError: The caller refuses.
        """
        resumption = context.resumption
        if resumption is None or not isinstance(resumption.state, dict) or _PENDING not in resumption.state:
            return
        pending: Mapping[str, Any] = resumption.state[_PENDING]
        before = Resumption(pending["state"], pending["answers"]) if "state" in pending else None
        context.resumption = before
        assert context.caller is not None, "the state is bound to its caller"
        answer = resumption.answers.get(pending["name"])
        action = answer.get("action") if isinstance(answer, dict) else "cancel"
        await self._answered(str(action), CredentialKey.of(context.caller, pending["server"]), pending["after"])

    async def _answered(self, action: str, key: CredentialKey, after: float) -> None:
        """Wait for the credential of a caller who has agreed to open the link, for some seconds.

        Raises:
            ToolError: The caller did not agree, or the credentials cannot be read.
        """
        if action != "accept":
            raise ToolError(f"the server {key.server!r} needs a credential, and you did not open the link to give it")
        try:
            with anyio.move_on_after(self.wait_seconds):
                await self._broker.arrived(key, after=after)
        except CredentialStoreError as error:
            raise ToolError(f"the credential for {key.server!r} cannot be read: {error}") from error

    async def _made_at(self, key: CredentialKey) -> float:
        """Return the time of the caller's present credential, which the server has refused; 0 if there is none."""
        present = await self._broker.store.get(key)
        return 0.0 if present is None else present.made_at

    def _notify_when_there(self, session: Session, link: Link, after: float) -> None:
        """Send ``notifications/elicitation/complete`` to the client that got the link, once."""
        waiting = session, link.id
        if waiting in self._waiting:
            return
        scope = self._waiting[waiting] = anyio.CancelScope()

        async def notify() -> None:
            try:
                with scope, suppress(CredentialStoreError), anyio.move_on_after(self._links.seconds):
                    await self._broker.arrived(link.key, after=after)
                    if session.notify is not None:
                        session.notify(notification("notifications/elicitation/complete", {"elicitationId": link.id}))
            finally:
                del self._waiting[waiting]

        start_detached(notify, "completion of an elicitation")

    def _reason(self, needed: CredentialNeededError) -> str:
        """Return what the caller is asked for."""
        server, grant = needed.key.server, self._broker.grants[needed.key.server]
        assert isinstance(grant, CallerGrant)
        about = grant.describe()
        what = "log in" if needed.kind == "login" else "give a key or token of yours"
        if needed.scope is not None:
            return f"The server {server!r} ({about.address}) needs you to log in again, for {_listed(needed.scope)}."
        again = " again: it refused your last one" if needed.refused else ", once"
        return f"The server {server!r} ({about.address}) needs you to {what}{again}."

    def _in_words(self, reason: str, url: str) -> str:
        """Return the question as the text of a result, for a model that passes it on."""
        return (
            f"{reason} Nothing was run. Ask the user to open this link in a browser, and then repeat this request: "
            f"{url} (for this user only; it is valid for {self._links.seconds / 60:.0f} minutes and can be used once)"
        )


def _listed(scope: str) -> str:
    """Return scopes as they may be shown: a server could write any text in their place."""
    scopes = scope.split()
    shown = ", ".join(f"{each[:_MAX_SCOPE_CHARS]!r}" for each in scopes[:_MAX_SCOPES])
    more = f" and {len(scopes) - _MAX_SCOPES} more" if len(scopes) > _MAX_SCOPES else ""
    return f"{'the permission' if len(scopes) == 1 else 'the permissions'} {shown}{more}"
