"""Headers of a request as text, for tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class DecodedHeaders(Mapping[str, str]):
    """Headers as text, decoded on access. Names are case-insensitive."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.lower().encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)
