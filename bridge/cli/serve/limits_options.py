"""Limit options of ``bridge serve``, for each caller and for the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bridge.cli.options import count_setting, setting, texts_setting, usage_errors
from bridge.errors import DefinitionError
from bridge.hosting.http.limits import DEFAULT_MAX_HEADER_BYTES
from bridge.server.limits import Limits, Rate
from bridge.tools.execution import ExecutionPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

_Value = TypeVar("_Value")

_CALLERS, _TEAMS = "Limits of callers", "Limits of teams"
_RESULTS, _SERVER = "Limits of results", "Limits of the server"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsOptions:
    """Limit options."""

    rate: str | None = setting(
        metavar="N/SECONDS",
        help="Over HTTP: maximum rate of requests of each caller, such as 100/10; others are answered 429.",
        heading=_CALLERS,
    )
    concurrency: int | None = count_setting(
        "CALLS",
        "Maximum running calls of each caller in each process; others are answered 429, or in a session by an "
        "error result.",
        heading=_CALLERS,
    )
    max_streams: int | None = count_setting(
        "STREAMS",
        "Over HTTP: maximum open streams of each caller in each process; others are answered 429.",
        heading=_CALLERS,
    )
    team_rate: tuple[str, ...] = texts_setting(
        metavar="[TEAM=]N/SECONDS",
        help="Over HTTP: maximum rate of requests of all members of a team together, by its name or a pattern; the "
        "first that matches applies. Repeatable.",
        heading=_TEAMS,
    )
    team_concurrency: tuple[str, ...] = texts_setting(
        metavar="[TEAM=]N",
        help="Maximum running calls of all members of a team together, likewise, in each process. Repeatable.",
        heading=_TEAMS,
    )
    team_tasks: tuple[str, ...] = texts_setting(
        metavar="[TEAM=]N",
        help="Maximum running tasks of all members of a team together, likewise, in each process. Repeatable.",
        heading=_TEAMS,
    )
    team_bytes: tuple[str, ...] = texts_setting(
        metavar="[TEAM=]SIZE/TIME",
        help="Over HTTP: maximum bytes of results of all members of a team together in a period, such as 50MiB/1h, "
        "likewise; requests after a result that exceeds it are answered 429. Repeatable.",
        heading=_TEAMS,
    )
    tool_rate: tuple[str, ...] = texts_setting(
        metavar="TOOL=N/SECONDS",
        help="Maximum rate of calls of a tool, resource or prompt, by name or pattern (delete_*=5/60), for each "
        "caller. Repeatable.",
        heading=_CALLERS,
    )
    tool_concurrency: tuple[str, ...] = texts_setting(
        metavar="TOOL=N",
        help="Maximum running calls of a tool, resource or prompt, by name or pattern, for each caller in each "
        "process. Repeatable.",
        heading=_CALLERS,
    )
    max_output_chars: int | None = count_setting(
        "CHARACTERS",
        "Maximum characters of a result's text for the model; a longer text is cut in the middle.",
        heading=_RESULTS,
    )
    max_result_bytes: int | None = count_setting(
        "BYTES", "Maximum length of a call's result as JSON; a longer result becomes an error.", heading=_RESULTS
    )
    tool_max_result_bytes: tuple[str, ...] = texts_setting(
        metavar="TOOL=BYTES",
        help="Maximum length of a tool's results, by name or pattern; the smallest that matches applies. Repeatable.",
        heading=_RESULTS,
    )
    max_calls: int = count_setting(
        "CALLS",
        "Over HTTP: maximum calls of all callers that run or wait in each process; others are answered by an "
        "error that says when to try again.",
        default=10_000,
        heading=_SERVER,
    )
    max_sessions: int = count_setting(
        "SESSIONS",
        "Over HTTP: maximum open sessions. At the maximum, a caller with fewer sessions displaces an idle session "
        "of the caller with most; others are answered 503.",
        default=10_000,
        heading=_SERVER,
    )
    session_idle: int = count_setting(
        "SECONDS",
        "Over HTTP: seconds after which a session that nobody uses is ended; its client opens another.",
        default=1800,
        heading=_SERVER,
    )
    max_header_bytes: int = count_setting(
        "BYTES",
        "Over HTTP: maximum length of a request's target and headers; longer ones are answered 431.",
        least=1024,
        default=DEFAULT_MAX_HEADER_BYTES,
        heading=_SERVER,
    )
    max_connections: int | None = count_setting(
        "CONNECTIONS",
        "Over HTTP: maximum open connections. At the maximum, an address with fewer connections displaces an idle "
        "one of the address with most; others are answered 503 and closed.",
        heading=_SERVER,
    )

    def limits(self, ctx: click.Context, *, of_callers: bool = False) -> Limits | None:
        """Build the limits; None for none.

        Args:
            ctx: The command.
            of_callers: True if callers may have limits of their own.
        """
        by_caller = self.rate, self.concurrency, self.max_streams, self.tool_rate, self.tool_concurrency
        of_teams = self.team_rate, self.team_concurrency, self.team_tasks, self.team_bytes
        if not any((of_callers, *by_caller, *of_teams, self.max_result_bytes, self.tool_max_result_bytes)):
            return None
        with usage_errors(ctx, DefinitionError):
            return Limits(
                rate=None if self.rate is None else _read("--rate", Rate.read, self.rate),
                concurrency=self.concurrency,
                max_streams=self.max_streams,
                tool_rates=_by_tool("--tool-rate", self.tool_rate, Rate.read),
                tool_concurrency=_counts_by_tool("--tool-concurrency", self.tool_concurrency),
                team_rates=_by_tool("--team-rate", map(_of_all, self.team_rate), Rate.read),
                team_concurrency=_counts_by_tool("--team-concurrency", map(_of_all, self.team_concurrency)),
                team_tasks=_counts_by_tool("--team-tasks", map(_of_all, self.team_tasks)),
                team_bytes=_by_tool("--team-bytes", map(_of_all, self.team_bytes), Rate.read_bytes),
                of_callers=of_callers,
                max_result_bytes=self.max_result_bytes,
                tool_result_bytes=_counts_by_tool("--tool-max-result-bytes", self.tool_max_result_bytes),
            )

    def policy(self) -> ExecutionPolicy | None:
        """Build the execution policy; None for the default."""
        return None if self.max_output_chars is None else ExecutionPolicy(max_output_chars=self.max_output_chars)


def _of_all(text: str) -> str:
    """Return a limit with the pattern of all teams, if it names none."""
    return text if "=" in text else f"*={text}"


def _by_tool(option_name: str, texts: Iterable[str], read: Callable[[str], _Value]) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for text in texts:
        tool, is_written, value = text.rpartition("=")
        if not (is_written and tool):
            raise DefinitionError(
                f"{option_name} has the form TOOL={'N/SECONDS' if 'rate' in option_name else 'N'}, not {text!r}"
            )
        found[tool.strip()] = _read(option_name, read, value)
    return found


def _read(option_name: str, read: Callable[[str], _Value], text: str) -> _Value:
    """Read a value; an error names its option."""
    try:
        return read(text)
    except DefinitionError as error:
        raise DefinitionError(f"{option_name}: {error}") from error


def _counts_by_tool(option_name: str, texts: Iterable[str]) -> dict[str, int]:
    def count(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < 1:
            raise DefinitionError(f"a whole number of at least 1 is needed, not {text!r}")
        return int(text)

    return _by_tool(option_name, texts, count)
