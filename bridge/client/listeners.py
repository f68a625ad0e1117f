"""Listeners: whoever is to be told of something, until they no longer want to be."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("bridge.client")
News = ParamSpec("News")


class Listeners(Generic[News]):
    """Functions that are called with each piece of news, in the order in which they came."""

    def __init__(self) -> None:
        self._listeners: list[Callable[News, None]] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Callable[News, None]) -> Callable[[], None]:
        """Have a listener told from now on; returns a function that ends that, and may be called again."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def tell(self, *news: News.args, **more: News.kwargs) -> None:
        """Tell all; what a listener raises is logged."""
        for listener in tuple(self._listeners):
            try:
                listener(*news, **more)
            except Exception:
                _logger.exception("a listener failed")
