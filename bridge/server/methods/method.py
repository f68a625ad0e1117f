"""Base of the protocol methods: reading of their parameters, and their answers.

    exchange ─> plan ─┬─> bytes    the result
                      ╰─> None     it has to be run:  start ─┬─> bytes    the answer: its function has ended
                                                             ╰─> None     `run` continues it, or runs it

Each method is a class in a module of this folder; `registry` names them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bridge.protocol.envelope import invalid_params
from bridge.protocol.rounds import Round, binding
from bridge.server.auth.access import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.protocol.rounds import StateSeal
    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.server.forwarded import ForwardedCall
    from bridge.server.session_states import SessionStates
    from bridge.tools.caller import Caller
    from bridge.tools.middleware import Hook
    from bridge.types import Json, Step

Era = Literal["handshake", "modern"]
"""``handshake`` are the versions up to 2025-11-25, ``modern`` is 2026-07-28."""
HANDSHAKE: frozenset[Era] = frozenset({"handshake"})
MODERN: frozenset[Era] = frozenset({"modern"})
ERAS = HANDSHAKE | MODERN


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a request, such as the tool of a call."""

    requested: str | None
    """Name in the request; None if it is not text."""
    name: str | None
    """Name of the target; None if there is no such target."""
    upstream: str | None
    """Upstream server of the target; None for a target in this process."""
    grant: str | None = None
    """Way by which each caller has a credential of its own for that server; None if all have the same."""


class Method:
    """A protocol method, for one server."""

    name: ClassVar[str]
    """Name of the method, such as ``tools/list``."""
    eras: ClassVar[frozenset[Era]] = ERAS
    """Eras that have it."""
    noun: ClassVar[str] = "tool"
    """The target in words, which its records have as well: ``tool``, ``resource`` or ``prompt``."""
    target_param: ClassVar[str | None] = None
    """Parameter that names the target, which HTTP repeats in the header ``Mcp-Name``; None for no target."""
    header_param: ClassVar[str | None] = None
    """Parameter that HTTP repeats in ``Mcp-Name`` although it names no target; None for none."""
    needs_session: ClassVar[bool] = False
    """True if the handshake era has it in sessions only."""
    may_ask: ClassVar[bool] = False
    """True if its result may ask the client, in the modern era."""

    waits_for_start: ClassVar[bool] = True
    """True if a request waits until the lists are complete, unless its target is listed; see `Start`."""

    hook: ClassVar[Hook | None] = None
    """Method of `bridge.Middleware` for its requests; None for no middleware."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._layers = () if self.hook is None else core.layers_of(self.hook)
        """The middleware around its requests; empty for none."""

    @property
    def session_states(self) -> SessionStates:
        """State of the sessions of the server."""
        return self._core.session_states

    @property
    def is_served(self) -> bool:
        """True if the server has what the method is for."""
        return True

    def plan(self, exchange: ServedExchange) -> bytes | None:
        """Read the parameters of a request, without waiting.

        Returns:
            The result as JSON; None if the request has to be run.

        Raises:
            ProtocolError: The answer is an error.
        """
        raise NotImplementedError

    def run(self, exchange: ServedExchange) -> Awaitable[bytes]:
        """Run a request.

        Raises:
            ProtocolError: The answer is an error.
            InputRequired: The code asks its client a question.
        """
        raise NotImplementedError(f"{self.name!r} plans requests that it cannot run")

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:  # noqa: ARG002 - for subclasses
        """Run the first step of a function, and return the answer if it has ended; otherwise `run` continues it.

        Args:
            exchange: The request.
            step: Runs the first step of a coroutine; returns the rest, or raises StopIteration with its value.

        Raises:
            InputRequired: As by `run`.
        """
        return None

    def send_at_once(
        self,
        exchange: ServedExchange,  # noqa: ARG002 - for subclasses
        receive: Callable[[bytes | None], None],  # noqa: ARG002
    ) -> ForwardedCall | None:
        """Send the call of another server's tool in this turn of the event loop.

        Args:
            exchange: The request.
            receive: Called once, with the result, or with None if `run` has to continue the call.

        Returns:
            The call; None, before anything is sent, if `run` has to send it.
        """
        return None

    def close(self) -> None:
        """End requests that last until their client disconnects."""

    # --- questions of the modern era ----------------------------------------------------------------------------------

    def read_round(self, exchange: ServedExchange, seal: StateSeal) -> None:
        """Read the answers to questions, and the state of the last round.

        Raises:
            ProtocolError: They are malformed, or the state is not one of this request.
        """
        if not self.may_ask:
            return
        given, sealed = exchange.params.get("inputResponses"), exchange.params.get("requestState")
        if given is None:
            given = {}
        if type(given) is not dict or not all(type(each) is dict for each in given.values()):
            raise invalid_params("'inputResponses' must be an object of objects, the answers by key")
        if sealed is not None:
            exchange.round = Round(given, seal.unseal(sealed, self.bound(exchange)))
        elif given:
            exchange.round = Round(given)

    def bound(self, exchange: ServedExchange) -> bytes:
        """Return the digest of what a state of a request belongs to: its target, arguments and caller."""
        params, caller = exchange.params, exchange.origin.caller
        arguments = params.get("arguments") or {}
        return binding(self.name, self.target_in(params), arguments, None if caller is None else caller.name)

    # --- targets ------------------------------------------------------------------------------------------------------

    def target_in(self, params: Mapping[str, Any]) -> str | None:
        """Return the target that parameters name; None for none."""
        name = None if self.target_param is None else params.get(self.target_param)
        return name if isinstance(name, str) else None

    def target(
        self,
        params: Mapping[str, Any],  # noqa: ARG002 - for subclasses
        access: Access = EVERYTHING,  # noqa: ARG002
        caller: Caller | None = None,  # noqa: ARG002
    ) -> Target | None:
        """Return the target of a request; None for no target.

        Args:
            params: The parameters of the request, which may be malformed.
            access: Permissions of the caller; a target outside of them has no name.
            caller: The caller; None without authentication.
        """
        return None


def required_text(params: Mapping[str, Any], name: str) -> str:
    """Return a parameter that is text.

    Raises:
        ProtocolError: It is missing, or anything else.
    """
    value = params.get(name)
    if type(value) is not str:
        raise invalid_params(f"{name!r} must be text")
    return value


def optional_object(params: Mapping[str, Any], name: str) -> Json:
    """Return a parameter that is an object; empty without it.

    Raises:
        ProtocolError: It is anything else.
    """
    value = params.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise invalid_params(f"{name!r} must be an object")
    return value
