"""Limit options of ``bridge serve``, for each caller and for the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from bridge.cli.options import WholeNumber, option, option_group, texts_option
from bridge.errors import DefinitionError
from bridge.hosting.connection_limits import DEFAULT_MAX_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.limits import Limits
    from bridge.tools.execution import ExecutionPolicy

_Value = TypeVar("_Value")

DEFAULT_MAX_CALLS = 10_000
"""Default of ``--max-calls``."""
DEFAULT_MAX_SESSIONS = 10_000
"""Default of ``--max-sessions``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOptions:
    """Limit options."""

    rate: str | None
    concurrency: int | None
    max_streams: int | None
    tool_rate: tuple[str, ...]
    tool_concurrency: tuple[str, ...]
    max_output_chars: int | None
    max_result_bytes: int | None
    tool_max_result_bytes: tuple[str, ...]
    max_calls: int
    max_sessions: int
    max_header_bytes: int
    max_connections: int | None

    def limits(self, ctx: click.Context) -> Limits | None:
        """Build the limits; None for none.

        Raises:
            click.UsageError: An option is malformed.
        """
        if not (
            self.rate
            or self.concurrency
            or self.max_streams
            or self.tool_rate
            or self.tool_concurrency
            or self.max_result_bytes
            or self.tool_max_result_bytes
        ):
            return None
        from bridge.server.limits import Limits, Rate  # noqa: PLC0415 - only for those who limit something

        try:
            return Limits(
                rate=None if self.rate is None else Rate.read(self.rate),
                concurrency=self.concurrency,
                max_streams=self.max_streams,
                tool_rates=_by_tool("--tool-rate", self.tool_rate, Rate.read),
                tool_concurrency=_by_tool("--tool-concurrency", self.tool_concurrency, _count_of("--tool-concurrency")),
                max_result_bytes=self.max_result_bytes,
                tool_result_bytes=_by_tool(
                    "--tool-max-result-bytes", self.tool_max_result_bytes, _count_of("--tool-max-result-bytes")
                ),
            )
        except DefinitionError as error:
            raise click.UsageError(str(error), ctx) from error

    def policy(self) -> ExecutionPolicy | None:
        """Build the execution policy; None for the default."""
        if self.max_output_chars is None:
            return None
        from bridge.tools.execution import ExecutionPolicy  # noqa: PLC0415 - as above

        return ExecutionPolicy(max_output_chars=self.max_output_chars)


def _by_tool(option_name: str, texts: tuple[str, ...], read: Callable[[str], _Value]) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for text in texts:
        tool, is_written, value = text.rpartition("=")
        if not (is_written and tool):
            raise DefinitionError(
                f"{option_name} is written TOOL={'N/SECONDS' if 'rate' in option_name else 'N'}: {text!r}"
            )
        found[tool.strip()] = read(value)
    return found


def _count_of(option_name: str) -> Callable[[str], int]:
    def count(text: str) -> int:
        if not text.strip().isdecimal():
            raise DefinitionError(f"{option_name} takes a whole number, not {text!r}")
        return int(text)

    return count


limits_options = option_group(
    option(
        "--rate",
        metavar="N/SECONDS",
        help="Over HTTP: how many requests of one caller in how many seconds, such as 100/10; more are answered 429.",
    ),
    option(
        "--concurrency",
        type=WholeNumber(1),
        metavar="CALLS",
        help="How many calls of one caller at once in each process; more are answered 429, or in a session by a failed "
        "result.",
    ),
    option(
        "--max-streams",
        type=WholeNumber(1),
        metavar="STREAMS",
        help="Over HTTP: how many streams of one caller at once in each process; more are answered 429.",
    ),
    texts_option(
        "--tool-rate",
        metavar="TOOL=N/SECONDS",
        help="How many calls of a tool, or of each of a pattern (delete_*=5/60), by one caller; more fail. Repeatable.",
    ),
    texts_option(
        "--tool-concurrency",
        metavar="TOOL=N",
        help="How many calls of a tool, or of each of a pattern, by one caller at once in each process; more fail. "
        "Repeatable.",
    ),
    option(
        "--max-output-chars",
        type=WholeNumber(1),
        metavar="CHARACTERS",
        help="How many characters of text of a result a model reads: head and tail of a longer one.",
    ),
    option(
        "--max-result-bytes",
        type=WholeNumber(1),
        metavar="BYTES",
        help="The longest result of a call, as JSON; a longer one is a failed result that says how long it was.",
    ),
    texts_option(
        "--tool-max-result-bytes",
        metavar="TOOL=BYTES",
        help="The same for a tool, or for each of a pattern; of several the smallest counts. Repeatable.",
    ),
    option(
        "--max-calls",
        type=WholeNumber(1),
        metavar="CALLS",
        default=DEFAULT_MAX_CALLS,
        show_default=True,
        help="Over HTTP: how many calls of all callers may run or wait at once in each process; more are answered by "
        "an error that says when to try again.",
    ),
    option(
        "--max-sessions",
        type=WholeNumber(1),
        metavar="SESSIONS",
        default=DEFAULT_MAX_SESSIONS,
        show_default=True,
        help="Over HTTP: how many sessions may be open. Then who has fewer takes the place of one of whoever has most, "
        "in which no call runs; all others are answered 503.",
    ),
    option(
        "--max-header-bytes",
        type=WholeNumber(1024),
        metavar="BYTES",
        default=DEFAULT_MAX_HEADER_BYTES,
        show_default=True,
        help="Over HTTP: the longest address and headers of a request; longer ones are answered 431.",
    ),
    option(
        "--max-connections",
        type=WholeNumber(1),
        metavar="CONNECTIONS",
        help="Over HTTP: how many connections may be open. Then an address with fewer takes the place of one of the "
        "address with most, on which no call runs; all others are answered 503 and closed.",
    ),
)
"""Options of `LimitsOptions`."""
