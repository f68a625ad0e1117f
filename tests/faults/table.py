"""The table of the faults, and of the calls during them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEAD = (
    "fault", "over", "tried", "survived", "calls", "answered", "failed with an error", "lost", "run twice",
    "leaked processes", "leaked tasks", "leaked sockets",
)  # fmt: skip
_TOTAL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one fault over one route."""

    fault: str
    """The fault."""
    route: str
    """The route to the server."""
    survived: int
    """1 if calls were answered again afterwards, else 0."""
    calls: int
    """Number of calls before, during and after the fault."""
    answered: int
    """Number of calls with a result."""
    failed: int
    """Number of calls with an error."""
    lost: int
    """Number of calls with neither."""
    run_twice: int
    """Number of calls that the server ran more than once, by its own journal."""
    untrue: int
    """Number of calls with a wrong result, one that the journal does not have, or an error that denies a run."""
    leaked_processes: int
    leaked_tasks: int
    leaked_sockets: int
    """Leaked sockets and pipes."""


_SUMS = tuple(field.name for field in fields(Outcome))[2:]
_SHOWN = tuple(name for name in _SUMS if name != "untrue")


def markdown(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Return the table as in docs/performance.md: a row for each fault, and one for all of them."""
    faults: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        faults.setdefault(outcome.fault, []).append(outcome)
    if not faults:
        return
    yield _line(_HEAD)
    yield "|---|---" + "|---:" * (len(_HEAD) - 2) + "|"
    for fault, its in faults.items():
        yield _row(fault, ", ".join(outcome.route for outcome in its), its)
    yield _row(_TOTAL, "", [outcome for its in faults.values() for outcome in its])


def _row(name: str, routes: str, outcomes: list[Outcome]) -> str:
    sums = [sum(getattr(outcome, name) for outcome in outcomes) for name in _SHOWN]
    return _line([name, routes, str(len(outcomes)), *map(str, sums)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
