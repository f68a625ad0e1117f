"""Options with a twin in the environment; those of ``bridge serve`` that belong together are one dataclass."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Callable

Group = TypeVar("Group")


class CommaSeparated(click.ParamType[tuple[str, ...]]):
    """Texts separated by commas, on the command line as in the environment."""

    name = "text[,text…]"
    envvar_list_splitter: ClassVar[str | None] = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Cut at the commas."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """An option with its twin in the environment: ``--max-sessions`` is ``BRIDGE_MAX_SESSIONS``.

    Args:
        name: The option's name.
        settings: As for `click.option`.
    """
    return click.option(
        name, envvar="BRIDGE_" + name.removeprefix("--").replace("-", "_").upper(), show_envvar=True, **settings
    )


def texts_option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """An option that may be repeated, and takes several texts separated by commas.

    Args:
        name: The option's name.
        settings: As for `click.option`.
    """
    return option(name, type=CommaSeparated(), multiple=True, callback=_flat, **settings)


def grouped(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator; the help shows them in this order."""

    def add(function: Any) -> Any:
        for each in reversed(options):
            function = each(function)
        return function

    return add


prefix_option = option(
    "--prefix",
    type=click.Choice(["always", "on_collision", "never"]),
    help="When a server's name stands before the names of its tools: always, only before names that are taken, or "
    "never. By default as the configuration says, else always with several servers.",
)


def taken(group: type[Group], settings: dict[str, Any]) -> Group:
    """One group of options out of all that were given, which keeps the rest.

    Args:
        group: A dataclass with a field for each of its options.
        settings: The values of all options by parameter name; those of the group are taken away.
    """
    names = [field.name for field in fields(group)]  # type: ignore[arg-type]  # there is no public name for a dataclass
    return group(**{name: settings.pop(name) for name in names})


def typed_options(ctx: click.Context) -> list[click.Option]:
    """The options of a command that stand on the command line, in the order of its help."""
    return [
        each
        for each in ctx.command.params
        if isinstance(each, click.Option) and ctx.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
    ]


def _flat(_context: click.Context, _parameter: click.Parameter, values: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value)
