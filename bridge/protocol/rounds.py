"""Rounds: questions of the modern era, which end a request, and whose answers come with its repetition.

    request ─> questions ─> input_required, with the sealed state ─> request again, with the state and answers ─> …

The client carries the state, which it cannot read or change: it is encrypted for the same request of the same caller.
MCP 2026-07-28, "Multi round-trip requests" (SEP-2322).
"""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from os import urandom
from time import time
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from bridge.types import Json

_logger = logging.getLogger("bridge.server")
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

STATE_TTL_SECONDS = 3600.0
"""Seconds within which a client must answer the questions of a request."""
MIN_KEY_BYTES = 32
"""Minimum length of a key that encrypts states."""

_FORM = b"b1"
_BEGINNING = _FORM.decode() + "."
_KEY_ID_BYTES, _NONCE_BYTES, _TIME_BYTES, _TAG_BYTES = 4, 12, 8, 16
_HEAD_BYTES = _KEY_ID_BYTES + _NONCE_BYTES
_MIN_BYTES = _HEAD_BYTES + _TIME_BYTES + _TAG_BYTES
_INFO = b"bridge/request-state/1/aes-256-gcm"
_REASON = "the call began in another process, or too long ago: its outcome is unknown, and it was not run again"


class Round:
    """One round of a request: what earlier rounds asked, and the answers so far.

    Args:
        given: The answers in the request, by the questions' keys.
        state: State of the round before; None for the first round.
    """

    __slots__ = ("answers", "number", "saved", "saved_answers")

    def __init__(self, given: Mapping[str, Json], state: Json | None = None) -> None:
        # A client may answer before it was asked: its answers are kept for questions of this round. Otherwise, only
        # answers to questions of the last round count.
        state = state or {"round": -1, "asked": list(given), "answers": {}}
        self.number: int = state["round"] + 1
        """Number of earlier rounds."""
        self.answers: Json = state["answers"] | {key: given[key] for key in state["asked"] if key in given}
        """The answers by key, in MCP's JSON."""
        self.saved: Any = None
        """State that the code of the last round left for this one; None without one."""
        self.saved_answers: Json = {}
        """The answers that belong to it."""
        if "state" in state:  # the code that saved it handles the answers, and may ask the same questions again
            self.saved, self.saved_answers, self.answers = state["state"], self.answers, {}

    def next_state(self, asked: Iterable[str], saved: Any) -> Json:
        """Return the state for the next round, given the keys of the questions and what the code leaves for it."""
        state: Json = {"round": self.number, "asked": list(asked), "answers": self.answers}
        return state if saved is None else {**state, "state": saved}


FIRST_ROUND = Round({})
"""The round of a request without answers."""


def binding(*parts: Any) -> bytes:
    """Return a digest of what a state belongs to, such as the method, its target and its arguments."""
    return sha256(_ENCODER.encode(parts).encode()).digest()


class StateSeal:
    """Encrypts the states of one server by AES-256-GCM.

    Args:
        keys: Secrets of at least 32 bytes: the first encrypts, all decrypt; None for a random key of this process.
        audience: Name of the server; servers with the same keys do not read one another's states.
        seconds: Seconds until a state expires.
        clock: Returns the time in seconds.

    Raises:
        ValueError: A key is too short, or there is none.
    """

    def __init__(
        self,
        keys: Sequence[bytes] | None,
        audience: str,
        seconds: float = STATE_TTL_SECONDS,
        clock: Callable[[], float] = time,
    ) -> None:
        if keys is not None:
            check_state_keys(keys)
        self._keys = [urandom(MIN_KEY_BYTES)] if keys is None else [bytes(key) for key in keys]
        self._audience = audience.encode(errors="surrogatepass")
        self._seconds = seconds
        self._clock = clock
        self._ciphers: dict[bytes, AESGCM] = {}

    def seal(self, state: Json, bound: bytes) -> str:
        """Encrypt a state.

        Args:
            state: The state.
            bound: The `binding` that the next round has to have.
        """
        key_id, cipher = next(iter(self._by_id().items()))
        nonce = urandom(_NONCE_BYTES)
        until = int(self._clock() + self._seconds).to_bytes(_TIME_BYTES, "big")
        text = _written(state)
        sealed = cipher.encrypt(nonce, until + text, self._bound(key_id, bound))
        return _token(key_id + nonce + sealed)

    def unseal(self, token: object, bound: bytes) -> Json:
        """Decrypt a state.

        Raises:
            ProtocolError: It was changed, has expired, or belongs to another request, caller or server.
        """
        state = self.opened(token, bound) if isinstance(token, str) else None
        if state is None:
            _logger.warning("a requestState was refused: it was changed, has expired, or belongs to another request")
            raise ProtocolError(
                INVALID_PARAMS, f"Invalid or expired requestState: {_REASON}", {"reason": "invalid_request_state"}
            )
        return state

    def opened(self, token: str, bound: bytes) -> Json | None:
        """Decrypt a state; None where `unseal` raises an error."""
        text = token.removeprefix(_BEGINNING)
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            return None
        if _token(raw) != token or len(raw) < _MIN_BYTES:
            return None
        key_id, nonce, sealed = raw[:_KEY_ID_BYTES], raw[_KEY_ID_BYTES:_HEAD_BYTES], raw[_HEAD_BYTES:]
        cipher = self._by_id().get(key_id)
        if cipher is None:
            return None
        try:
            opened = cipher.decrypt(nonce, sealed, self._bound(key_id, bound))
        except self._invalid_tag:
            return None
        if int.from_bytes(opened[:_TIME_BYTES], "big") <= self._clock():
            return None
        return _read(opened[_TIME_BYTES:])

    def is_latest(self, token: str) -> bool:
        """Return True if a state is encrypted with the first key."""
        beginning = _token(next(iter(self._by_id())))[:-1]  # the last character has bits of the nonce, too
        return token.startswith(beginning)

    def _bound(self, key_id: bytes, bound: bytes) -> bytes:
        return b"%b%b%b%b" % (_FORM, key_id, bound, self._audience)

    def _by_id(self) -> dict[bytes, AESGCM]:
        """Return the ciphers by ids of their keys, the one that encrypts first."""
        if not self._ciphers:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - takes a while to import
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
            from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

            self._invalid_tag: type[Exception] = InvalidTag
            for key in self._keys:
                derived = HKDF(SHA256(), 32, None, _INFO).derive(key)
                self._ciphers.setdefault(sha256(_INFO + derived).digest()[:_KEY_ID_BYTES], AESGCM(derived))
        return self._ciphers


def _token(raw: bytes) -> str:
    return _BEGINNING + urlsafe_b64encode(raw).rstrip(b"=").decode()


def _written(state: Json) -> bytes:
    try:
        return to_json(state)
    except ValueError:  # a lone surrogate
        return json.dumps(state, separators=(",", ":")).encode()


def _read(text: bytes) -> Json:
    try:
        state: Json = from_json(text)
    except ValueError:
        state = json.loads(text)
    return state


def check_state_keys(keys: Sequence[bytes]) -> None:
    """Check keys that encrypt states.

    Raises:
        ValueError: A key is too short, or there is none.
    """
    if not keys:
        raise ValueError("state_keys needs at least one key, or None for a random one")
    for number, key in enumerate(keys):
        if len(key) < MIN_KEY_BYTES:
            raise ValueError(f"state_keys[{number}] has {len(key)} bytes, and needs {MIN_KEY_BYTES} random ones")
