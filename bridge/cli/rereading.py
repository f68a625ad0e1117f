"""Rereading: configurations that are watched, so that a gateway follows them without being started again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection
    from pathlib import Path

_logger = logging.getLogger("bridge.cli")
_DEBOUNCE_MILLISECONDS = 400
_STEP_MILLISECONDS = 50


def changes_of(files: Collection[Path]) -> AsyncIterator[object]:
    """The changes of files, whether they are replaced or written to; some that follow one another are one.

    Raises:
        MissingExtraError: ``watchfiles`` is not installed.
    """
    try:
        from watchfiles import awatch  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtraError("--reload", "watchfiles", "reload") from error
    wanted = {str(file.resolve()) for file in files}
    return awatch(
        *sorted({str(file.resolve().parent) for file in files}),
        watch_filter=lambda _, path: path in wanted,
        debounce=_DEBOUNCE_MILLISECONDS,
        step=_STEP_MILLISECONDS,
        recursive=False,
    )


async def follow(changes: AsyncIterator[object], apply: Callable[[], Awaitable[None]]) -> None:
    """Have something done after each change, until cancelled.

    Args:
        changes: The changes.
        apply: Reads the files again. Where it fails the log says so, and what was read before stays.
    """
    async for _ in changes:
        try:
            await apply()
        except BridgeError as error:
            _logger.error("the changed configuration is not used: %s", error)  # noqa: TRY400 - the message says it all
