"""ClientValues: state of clients of the handshake era, which lives as long as they are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import finalize

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ClientValues(Generic[T]):
    """A value for each client, known by the SDK's record of it.

    Args:
        default: Makes the value of a client that has none.
    """

    def __init__(self, default: Callable[[], T]) -> None:
        self._default = default
        self._values: dict[int, T] = {}

    def of(self, client: object) -> T:
        """Return the value of a client; a value that can change is kept."""
        value = self._values.get(id(client))
        if value is None:
            value = self._default()
            if client is not None:
                self.keep(client, value)
        return value

    def keep(self, client: object, value: T) -> None:
        """Store the value of a client for as long as it is connected."""
        key = id(client)
        if key not in self._values:
            finalize(client, self._values.pop, key, None).atexit = False
        self._values[key] = value

    def __len__(self) -> int:
        return len(self._values)
