"""Warnings of functions that block the event loop, for development: nothing else is served meanwhile.

A thread looks at the stack of the event loop whenever the loop has not run for a while, so that calls cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import sysconfig
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import FrameType

BLOCKED_SECONDS = 0.25
"""Seconds after which a function that blocks the event loop is named."""

_TICK_SECONDS = 0.05
_logger = logging.getLogger("bridge.hosting")
_OWN = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_LOOP = frozenset({("asyncio", "_run"), ("asyncio", "run_forever"), ("asyncio", "run"), ("_backends", "run")})
"""Folder and function of the frames in which an event loop runs a callback."""


@asynccontextmanager
async def blocks_reported() -> AsyncIterator[None]:
    """Context in which functions that block this event loop are logged."""
    watch = _Watch(asyncio.get_running_loop())
    thread = threading.Thread(target=watch.run, name="bridge-blocked-loop", daemon=True)
    watch.tick()
    thread.start()
    try:
        yield
    finally:
        watch.ended.set()


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended = threading.Event()
        self._loop = loop
        self._thread = threading.get_ident()
        self._ticked_at = monotonic()

    def tick(self) -> None:
        self._ticked_at = monotonic()
        if not self.ended.is_set():
            self._loop.call_later(_TICK_SECONDS, self.tick)

    def run(self) -> None:
        reported = 0.0
        while not self.ended.wait(_TICK_SECONDS):
            ticked_at = self._ticked_at
            if ticked_at == reported or monotonic() - ticked_at < BLOCKED_SECONDS + _TICK_SECONDS:
                continue
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
            if frame is not None and ticked_at == self._ticked_at and (found := _function_of(frame)) is not None:
                reported = ticked_at
                outer, inner = found
                _logger.warning(
                    "%r blocks the event loop, at %s:%d, for more than %d ms; nothing else is served meanwhile: make "
                    "it a plain def, which runs in a worker thread, or await what it waits for",
                    outer.f_code.co_qualname,
                    Path(inner.f_code.co_filename).name,
                    inner.f_lineno,
                    BLOCKED_SECONDS * 1000,
                )


def _function_of(frame: FrameType) -> tuple[FrameType, FrameType] | None:
    """Return the outermost and the innermost frame of a user's code in the running callback; None if it has none."""
    users: list[FrameType] = []
    each: FrameType | None = frame
    while each is not None:
        file = each.f_code.co_filename
        if (Path(file).parent.name, each.f_code.co_name) in _LOOP:
            break
        if not (file.startswith((_OWN, "<", *_LIBRARIES)) or _INSTALLED in file):
            users.append(each)
        each = each.f_back
    return (users[-1], users[0]) if users else None
