"""State of a session: values that functions keep from one call of a client to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.errors import ToolError
from bridge.portal import run_in_loop

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_STATE_BYTES = 64 * 1024
"""Maximum length of the keys and values of a session, as JSON."""
MAX_STATE_KEYS = 128
"""Maximum number of keys of a session."""


class SessionState(ABC):
    """Values that are kept for one session, and are gone with it; `InvocationContext.session`.

    A value is JSON: what `set` gets is written as JSON, and `get` returns a copy. Each method is atomic, and several
    together are not.

    Args:
        session_id: Id of the session; None if only one call can use it.
    """

    def __init__(self, session_id: str | None) -> None:
        self.id = session_id

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default if there is none.

        Raises:
            ToolError: The values cannot be reached now.
        """
        text = await self._read(key)
        return default if text is None else from_json(text)

    async def set(self, key: str, value: Any) -> None:
        """Set the value of a key.

        Raises:
            TypeError: The key is no text, or the value cannot be written as JSON.
            ToolError: The session has too many keys or bytes, or has ended, or the values cannot be reached now.
        """
        if not isinstance(key, str):
            raise TypeError(f"a key of a session is text, not {key!r}")
        try:
            text = to_json(value)
        except ValueError as error:
            raise TypeError(f"the value of {key!r} in a session cannot be written as JSON: {error}") from error
        await self._write(key, text)

    async def delete(self, key: str) -> None:
        """Delete the value of a key, if there is one.

        Raises:
            ToolError: The values cannot be reached now.
        """
        await self._remove(key)

    @abstractmethod
    async def _read(self, key: str) -> bytes | None: ...

    @abstractmethod
    async def _write(self, key: str, text: bytes) -> None: ...

    @abstractmethod
    async def _remove(self, key: str) -> None: ...


class MemoryState(SessionState):
    """Values in the memory of this process.

    Args:
        session_id: Id of the session.
        values: Returns the values as JSON, by key.
        keep: Counts further bytes, or fewer if negative; returns False if they are too many.
    """

    def __init__(
        self,
        session_id: str | None,
        values: Callable[[], dict[str, bytes]],
        keep: Callable[[int], bool] = lambda _: True,
    ) -> None:
        super().__init__(session_id)
        self._values = values
        self._keep = keep

    async def _read(self, key: str) -> bytes | None:
        return self._values().get(key)

    async def _write(self, key: str, text: bytes) -> None:
        values = self._values()
        others = sum(length_of(name, each) for name, each in values.items() if name != key)
        length = length_of(key, text)
        if (key not in values and len(values) >= MAX_STATE_KEYS) or others + length > MAX_STATE_BYTES:
            raise state_is_full()
        if not self._keep(length - self._length(values, key)):
            raise ToolError("the server keeps no more data for this session, or the session has ended")
        values[key] = text

    async def _remove(self, key: str) -> None:
        values = self._values()
        self._keep(-self._length(values, key))
        values.pop(key, None)

    @staticmethod
    def _length(values: dict[str, bytes], key: str) -> int:
        return length_of(key, values[key]) if key in values else 0


class BlockingSession:
    """Blocking versions of `SessionState`'s methods for functions in a worker thread.

    Args:
        state: Returns the state, in the event loop.
    """

    def __init__(self, state: Callable[[], SessionState]) -> None:
        self._state = state

    def get(self, key: str, default: Any = None) -> Any:
        """See `SessionState.get`."""
        return run_in_loop(lambda: self._state().get(key, default))

    def set(self, key: str, value: Any) -> None:
        """See `SessionState.set`."""
        run_in_loop(lambda: self._state().set(key, value))

    def delete(self, key: str) -> None:
        """See `SessionState.delete`."""
        run_in_loop(lambda: self._state().delete(key))


def length_of(key: str, text: bytes) -> int:
    """Return the bytes for which a value counts."""
    return len(key.encode(errors="surrogatepass")) + len(text)


def state_is_full() -> ToolError:
    """Return the error of a session with too many values."""
    return ToolError(
        f"a session keeps at most {MAX_STATE_KEYS} values, of {MAX_STATE_BYTES} bytes together; delete some, or keep "
        "large ones elsewhere"
    )
