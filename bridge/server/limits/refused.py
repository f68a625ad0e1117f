"""What somebody who is over a limit is told."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from bridge.tools.content import Text
from bridge.tools.tool import ToolExecutionResult

if TYPE_CHECKING:
    from bridge.server.limits.rate import Rate

RETRY_AFTER_META_KEY = "io.github.mcp-toolbridge/retryAfterSeconds"
"""Where the result of a call that was refused says, in ``_meta``, when to try again."""

_WHEN_ONE_IS_DONE_SECONDS = 1


class Refused(NamedTuple):
    """Why something goes no further, and when trying again may help."""

    message: str
    limit: str
    """The option that sets the limit."""
    retry_after_seconds: int

    @property
    def told(self) -> str:
        """The message, with when to try again."""
        seconds = self.retry_after_seconds
        return f"{self.message}; try again in {seconds} second{'' if seconds == 1 else 's'}"

    @property
    def result(self) -> ToolExecutionResult:
        """The result of a call that was not run."""
        return ToolExecutionResult(
            (Text(self.told),), is_error=True, metadata={RETRY_AFTER_META_KEY: self.retry_after_seconds}
        )


def too_often(what: str, rate: Rate, wait_seconds: float, limit: str) -> Refused:
    """Somebody is over a rate."""
    return Refused(f"{what}: a caller has {rate}", limit, max(1, math.ceil(wait_seconds)))


def too_many(what: str, at_most: int, limit: str) -> Refused:
    """Somebody has too many of something at once."""
    return Refused(f"{what}: a caller has {at_most} at once", limit, _WHEN_ONE_IS_DONE_SECONDS)


def too_many_of_all(what: str, at_most: int, limit: str) -> Refused:
    """All callers together have too many of something at once."""
    return Refused(f"{what}: the server has {at_most} at once for all callers", limit, _WHEN_ONE_IS_DONE_SECONDS)
