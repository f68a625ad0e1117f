"""Links, questions and pages of one gateway, by which callers give it credentials for its servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from bridge.gateway.credentials.address import PublicAddress
from bridge.gateway.credentials.links import Links
from bridge.gateway.credentials.pages import ConnectPages
from bridge.gateway.credentials.questions import AskingExecutor, AskingToolExecutor, CredentialQuestions

if TYPE_CHECKING:
    from bridge.gateway.credentials.broker import CredentialBroker
    from bridge.gateway.credentials.identification import SignInClient

_Executor = TypeVar("_Executor")


class Connecting:
    """The questions, links and pages by which the callers of one gateway give their credentials.

    Args:
        broker: The credentials.
        public_url: URL under which browsers reach the gateway; see `PublicAddress`.
        sign_in_client: The gateway as a client of its callers' issuer; None to use its client ID metadata document.

    Attributes:
        address: The gateway's public URL.
        questions: Asks callers.
        pages: The pages that they are led to.
    """

    def __init__(
        self, broker: CredentialBroker, *, public_url: str | None = None, sign_in_client: SignInClient | None = None
    ) -> None:
        self._broker = broker
        self.address, links = PublicAddress(public_url), Links(broker.store)
        self.questions = CredentialQuestions(broker, links, self.address.base_for)
        self.pages = ConnectPages(broker, links, self.address, sign_in_client)

    @property
    def pages_if_needed(self) -> ConnectPages | None:
        """The pages; None if no server needs a credential that only the caller can give."""
        return self.pages if self._broker.grants else None

    def asking(self, executor: _Executor, server: str) -> _Executor | AskingExecutor:
        """Return an executor that asks its caller, if its server needs a credential that only the caller can give."""
        if server not in self._broker.grants:
            return executor
        kind = AskingToolExecutor if hasattr(executor, "begin") else AskingExecutor
        return kind(executor, self.questions)
