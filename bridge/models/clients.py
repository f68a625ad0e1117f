"""Clients of providers, one for each event loop.

The connections of an HTTP client belong to the event loop that opened them, while a model may be used in several: in
``asyncio.run`` twice, or in an event loop beside synchronous methods of a service.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from anyio import lowlevel

from bridge.errors import DefinitionError
from bridge.text import short_repr
from bridge.tools.checks import require_count, require_seconds, require_type

if TYPE_CHECKING:
    from collections.abc import Callable


def check_options(*, model_name: object, timeout_seconds: object, max_retries: object, url: object) -> None:
    """Check the options that the models of all providers have.

    Raises:
        DefinitionError: An option is invalid.
    """
    if not isinstance(model_name, str) or not model_name:
        raise DefinitionError(f"model_name must be the provider's name of a model, not {short_repr(model_name)}")
    require_seconds(timeout_seconds, "timeout_seconds", optional=False)
    require_count(max_retries, "max_retries", least=0)
    require_type(url, str | None, "the URL", "text, or None")


class _Client(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Client)


class ClientPerLoop(Generic[C]):
    """Makes a client for each event loop, on first use.

    Args:
        given: A client for all event loops, which is not closed; None to make them.
        make: Makes a client; called at once, so that wrong arguments raise here.

    Attributes:
        first: The given client, or that of the first event loop that needs one.
    """

    def __init__(self, given: C | None, make: Callable[[], C]) -> None:
        self._is_given = given is not None
        self.first = make() if given is None else given
        self._make = make
        self._is_first_free = True
        self._clients: WeakKeyDictionary[Any, C] = WeakKeyDictionary()
        self._lock = Lock()

    def current(self) -> C:
        """Return the client of the running event loop."""
        if self._is_given:
            return self.first
        loop: Any = lowlevel.current_token().native_token
        with self._lock:
            client = self._clients.get(loop)
            if client is None:
                client = self._clients[loop] = self.first if self._is_first_free else self._make()
                self._is_first_free = False
            return client

    async def close(self) -> None:
        """Close the client of the running event loop, unless it was given.

        The connections of an event loop that has ended are closed with it.
        """
        if not self._is_given:
            await self.current().close()
