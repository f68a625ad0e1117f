"""Session: one client of the handshake era, from ``initialize`` until it leaves.

MCP 2025-11-25, "Lifecycle", "Logging", "Cancellation"; for questions "Elicitation", "Sampling" and "Roots".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from bridge.protocol.envelope import (
    agreed_version,
    capabilities_in,
    check_capabilities,
    check_implementation,
    client_name,
    invalid_params,
)
from bridge.protocol.messages import ProtocolError, write_json
from bridge.protocol.versions import CONNECTION_CLOSED
from bridge.text import clip
from bridge.types import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.protocol.messages import MessageId
    from bridge.types import Json


class Running(Protocol):
    """A request of a session that is being answered."""

    def cancel(self) -> object:
        """Cancel it, because its client no longer waits."""
        ...


class Session:
    """One client of the handshake era."""

    def __init__(self) -> None:
        self.id: str | None = None
        """Id of the session over HTTP; None for other transports."""
        self.version = ""
        """The negotiated protocol version; empty before ``initialize``."""
        self.params: Json = {}
        """The parameters of ``initialize``."""
        self.capabilities: Mapping[str, Any] = {}
        """Capabilities that the client declared, in MCP's JSON."""
        self.client: str | None = None
        """Name of the client program; None if it is unknown."""
        self.is_initialized = False
        """True once the client has sent ``notifications/initialized``."""
        self.log_level: LogLevel | None = LOG_LEVELS[0]
        """Minimum severity of log messages; None for no messages."""
        self.watched: dict[str, Callable[[], object]] = {}
        """URIs of the resources that the client watches, with what ends the watching."""
        self.state: dict[str, bytes] = {}
        """Values that functions keep for the client, as JSON, by key."""
        self.state_id: str | None = None
        """Id under which functions know the client; None before any has used it."""
        self.running: dict[str, Running] = {}
        """Requests that are being answered, by id as text, since 7 and "7" are the same id."""
        self.at_end: dict[object, Callable[[], object]] = {}
        """Functions that are called once it has ended, each under a key of its own."""
        self.notify: Callable[[bytes], object] | None = None
        """Sends a notification once there is a stream for it; None until `is_initialized`."""
        self._questions: dict[str, Callable[[Json | ProtocolError], object]] = {}
        self._asked = 0
        self._is_closed = False
        self.id_prefix = ""
        """Beginning of the ids of questions, which tells replicas apart; empty for numbers."""

    def initialize(self, params: Json) -> None:
        """Negotiate the version, and keep what the client says about itself.

        Raises:
            ProtocolError: The parameters are malformed.
        """
        if type(params.get("protocolVersion")) is not str:
            raise invalid_params("'protocolVersion' must be text")
        check_capabilities(params.get("capabilities"))
        check_implementation(params.get("clientInfo"), "clientInfo")
        self.restore(params, agreed_version(params["protocolVersion"]))

    def restore(self, params: Json, version: str) -> None:
        """Set what `initialize` negotiated before."""
        self.params, self.version = params, version
        self.capabilities = capabilities_in(params)
        self.client = client_name(params)

    def keep(self, count: int) -> bool:  # noqa: ARG002 - for subclasses
        """Count further bytes that are kept for the client, or fewer; return False if they are too many."""
        return True

    def id_problem(self, request: MessageId) -> str | None:
        """Return the error message for a further request with an id that is in use; None for another id."""
        if str(request) not in self.running:
            return None
        return f"a request of this session with the id {clip(repr(request))} still runs; give each request its own id"

    def cancel(self, request: object) -> None:
        """Cancel the request with an id, if it runs."""
        running = self.running.get(str(request)) if type(request) in {int, str} else None
        if running is not None:
            running.cancel()

    def close(self) -> None:
        """Cancel what runs, refuse what is asked, and end what is watched, because the client has left."""
        self._is_closed = True
        for running in tuple(self.running.values()):
            running.cancel()
        while self._questions:
            self._questions.popitem()[1](_closed())
        while self.watched:
            self.watched.popitem()[1]()
        while self.at_end:
            self.at_end.popitem()[1]()

    # --- questions to the client -------------------------------------------------------------------------------------

    def ask(self, method: str, params: Json | None, on_answer: Callable[[Json | ProtocolError], object]) -> Question:
        """Begin a question to the client.

        Args:
            method: Its method.
            params: Its parameters; None for none.
            on_answer: Called once with the result or the error, unless the question is withdrawn.

        Raises:
            ProtocolError: The session is closed.
            ValueError: The parameters cannot be written as JSON.
        """
        if self._is_closed:
            raise _closed()
        self._asked += 1
        id_: MessageId = f"{self.id_prefix}{self._asked}" if self.id_prefix else self._asked
        message: Json = {"jsonrpc": "2.0", "id": id_, "method": method}
        text = write_json(message if params is None else {**message, "params": params})
        self._questions[str(id_)] = on_answer
        return Question(self, id_, text)

    def answered(self, message: Mapping[str, Any]) -> bool:
        """Handle a response of the client; return False if it answers no open question."""
        on_answer = self._questions.pop(str(message.get("id")), None)
        if on_answer is None:
            return False
        error = message.get("error")
        if error is None:
            on_answer(message["result"])
        else:
            on_answer(ProtocolError(error["code"], error["message"], error.get("data")))
        return True

    def withdraw(self, question: MessageId) -> None:
        """Forget a question for whose answer nothing waits any more."""
        self._questions.pop(str(question), None)


class Question:
    """A question to the client.

    Attributes:
        id: Id of its request.
        text: Its message.
    """

    __slots__ = ("_session", "id", "text")

    def __init__(self, session: Session, message_id: MessageId, text: bytes) -> None:
        self._session = session
        self.id = message_id
        self.text = text

    def withdraw(self) -> None:
        """Forget it, because nothing waits for its answer any more."""
        self._session.withdraw(self.id)


def _closed() -> ProtocolError:
    return ProtocolError(CONNECTION_CLOSED, "the session has ended")
