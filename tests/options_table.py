"""The table of the options of a command, made from the command itself: ``make reference`` writes it into the docs."""

from __future__ import annotations

from importlib import import_module

import click

MIB = 2**20


def table(name: str) -> str:
    """The options of a command: variable of the environment, value, unit, default and effect of each."""
    rows = [
        f"| option of `{name}` | environment | takes | unit | default | effect |",
        "|---|---|---|---|---|---|",
    ]
    command = import_module(f"bridge.cli.{name}").command
    rows += [_row(option) for option in command.params if isinstance(option, click.Option)]
    assert name != "serve" or all(option.envvar for option in command.params if isinstance(option, click.Option))
    return "\n".join(rows) + "\n"


def _row(option: click.Option) -> str:
    assert option.help, f"{option.opts[0]} does not say what it does"
    named = f"`{option.opts[0]}`", f"`{option.envvar}`" if option.envvar else ""
    cells = [*named, _taken(option), _unit(option), _default(option), option.help]
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(cell: str) -> str:
    """Escape what would begin a link or another cell."""
    parts = cell.replace("|", r"\|").split("`")
    return "`".join(part if number % 2 else part.replace("[", r"\[") for number, part in enumerate(parts))


def _taken(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " or ".join(f"`{choice}`" for choice in option.type.choices)
    return option.type.name if _is_number(option) else option.metavar or option.type.name


_UNITS = {"N/SECONDS": "seconds", "TOOL=N/SECONDS": "seconds", "TOOL=N": "calls", "TOOL=BYTES": "bytes"}


def _unit(option: click.Option) -> str:
    if not _is_number(option):
        return _UNITS.get(option.metavar or "", "")
    unit = (option.metavar or "").lower()
    assert unit or "seconds" in (option.help or ""), f"{option.opts[0]} does not say in what unit it is"
    return unit or "seconds"


def _is_number(option: click.Option) -> bool:
    return isinstance(option.type, click.IntRange | click.FloatRange)


def _default(option: click.Option) -> str:
    default = option.default
    if option.is_flag or option.multiple or not isinstance(default, str | int | float):
        return ""
    if isinstance(default, int) and default >= MIB and default % MIB == 0:
        return f"{default // MIB} MiB"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
