"""Options of ``bridge serve`` for large results, which are kept aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import Number, count_setting, setting
from bridge.tools.execution import LOCAL
from bridge.tools.spill import store as defaults
from bridge.tools.task import MAX_SECONDS

if TYPE_CHECKING:
    from bridge.server.features import Features
    from bridge.tools.execution import ExecutionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillOptions:
    """Options of large results."""

    spill_chars: int | None = count_setting(
        "CHARACTERS",
        "Keep results over this length aside: the model reads the beginning and the end, and can read the rest by a "
        "link or the tool read_result. Tools and servers may have limits of their own.",
    )
    spill_mode: str = setting(
        type=click.Choice(["keep", "measure"]),
        default="keep",
        help="measure changes no result, and counts what keep would save; see /status.",
    )
    spill_drop_schemas: bool = setting(
        is_flag=True,
        help="List tools whose results may be kept without output schemas, and send no structured content with a "
        "result that is kept. By default, structured content that a tool declares stays whole.",
    )
    spill_ttl: float = setting(
        type=Number(0.001, MAX_SECONDS),
        metavar="SECONDS",
        default=defaults.DEFAULT_TTL_SECONDS,
        help="Time for which a result is kept.",
    )
    spill_max_bytes: int = count_setting(
        "BYTES",
        "Maximum bytes of all kept results; each caller has at most a quarter. The oldest are deleted.",
        default=defaults.DEFAULT_MAX_BYTES,
    )
    spill_store: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="SQLite file that keeps results; created if it does not exist. By default a temporary file, or the Redis "
        "of --redis-url.",
    )

    def policy(self, policy: ExecutionPolicy | None, features: Features) -> ExecutionPolicy | None:
        """Add the options to a policy; they are needed if a result may be kept or measured."""
        is_needed = self.spill_chars is not None or self.spill_mode == "measure" or features.spills
        if not is_needed and all(tool.policy.spill_chars is None for tool in features.tools):
            return policy
        from bridge.tools.spill.spill import Spill  # noqa: PLC0415 - only if it is needed
        from bridge.tools.spill.sqlite_store import SqliteResultStore  # noqa: PLC0415 - imports SQLite

        spill = Spill(
            chars=self.spill_chars,
            mode="measure" if self.spill_mode == "measure" else "keep",
            drop_schemas=self.spill_drop_schemas,
            ttl_seconds=self.spill_ttl,
            max_bytes=self.spill_max_bytes,
            max_caller_bytes=max(1, self.spill_max_bytes // 4),
            store=None if self.spill_store is None else SqliteResultStore(self.spill_store),
        )
        return replace(policy or LOCAL, spill=spill)

    def check(self, ctx: click.Context, *, has_separate_workers: bool) -> None:
        """Check that a result can be read in another process than the one that has kept it."""
        if has_separate_workers and self.spill_chars is not None and self.spill_store is None:
            raise click.UsageError(
                "--spill-chars with several --workers needs --spill-store or --redis-url, where all of them find the "
                "results",
                ctx,
            )
