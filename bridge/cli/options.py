"""Options with environment twins; options that commands share.

Options with a twin in the environment; those of ``bridge serve`` that belong together are one dataclass.

Headers: the option by which a command gives a server behind a URL what goes with every request.

Numbers: what options take, called in the help and in messages what people call it.

Pins: the options by which a command holds servers to a lock file.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource

from bridge.cli.targets import UrlTarget, split_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.cli.targets import Target

Group = TypeVar("Group")

_AnyTarget = TypeVar("_AnyTarget", bound="Target")

header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="What goes with every request to a URL: --header 'Authorization: Bearer ${KEY}', in single quotes, takes the "
    "key out of the variable KEY. Repeatable.",
)
"""``--header``, with parameter ``headers``."""


class CommaSeparated(click.ParamType[tuple[str, ...]]):
    """Comma-separated texts, on the command line and in the environment."""

    name = "text[,text…]"
    envvar_list_splitter: ClassVar[str | None] = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Split at commas."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Option that can also be set in the environment: ``--max-sessions`` is ``BRIDGE_MAX_SESSIONS``.

    Args:
        name: The option's name.
        settings: As for `click.option`.
    """
    return click.option(
        name, envvar="BRIDGE_" + name.removeprefix("--").replace("-", "_").upper(), show_envvar=True, **settings
    )


def texts_option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Repeatable option of comma-separated texts.

    Args:
        name: The option's name.
        settings: As for `click.option`.
    """
    return option(name, type=CommaSeparated(), multiple=True, callback=_flat, **settings)


def option_group(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine options to one decorator, in the order of the help."""

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


def group_values(group: type[Group], settings: dict[str, Any]) -> Group:
    """Build a group of options, and remove its values from the settings.

    Args:
        group: A dataclass with a field for each of its options.
        settings: Values of all options by parameter name.
    """
    names = [field.name for field in fields(group)]  # type: ignore[arg-type]  # there is no public name for a dataclass
    return group(**{name: settings.pop(name) for name in names})


def typed_options(ctx: click.Context) -> list[click.Option]:
    """Options given on the command line, in the order of the help."""
    return [
        each
        for each in ctx.command.params
        if isinstance(each, click.Option) and ctx.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
    ]


def _flat(_context: click.Context, _parameter: click.Parameter, values: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(part for value in values for part in value)


def with_headers(
    ctx: click.Context, targets: Sequence[_AnyTarget], texts: Sequence[str]
) -> list[_AnyTarget | UrlTarget]:
    """Add HTTP headers to the one URL target; errors never contain their values.

    Args:
        ctx: The command.
        targets: The targets.
        texts: Values of the option.

    Raises:
        click.UsageError: A header is malformed, or the target for it is ambiguous.
    """
    if not texts:
        return list(targets)
    urls = sum(isinstance(target, UrlTarget) for target in targets)
    if urls != 1:
        why = "there is none" if not urls else f"there are {urls}, and it may be a secret of one"
        message = f"--header is for one http(s):// URL, and {why}: 'headers' in an mcp.json give each server its own"
        raise click.UsageError(message, ctx)
    headers = tuple(_header(ctx, text) for text in texts)
    if len({name.lower() for name, _ in headers}) < len(headers):
        raise click.UsageError("--header gives one header twice: leave one out", ctx)
    return [replace(target, headers=headers) if isinstance(target, UrlTarget) else target for target in targets]


def _header(ctx: click.Context, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (colon and name.strip()):
        raise click.UsageError("--header is 'NAME: VALUE', such as 'Authorization: Bearer ${KEY}'", ctx)
    return name.strip(), value.strip()


class WholeNumber(click.IntRange):
    """Integer in a range."""

    name = "integer"


class Number(click.FloatRange):
    """Number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the number; NaN is rejected."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return number


pins_options = option_group(
    option(
        "--pins",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A lock file of bridge pin, to which the tools of servers are held.",
    ),
    option(
        "--pin-mode",
        type=click.Choice(["refuse", "flag"]),
        default="refuse",
        show_default=True,
        help="Leave out tools that are not as they were pinned, or take them with a warning.",
    ),
)


def check_pins(ctx: click.Context, targets: Sequence[Target]) -> None:
    """Refuse a lock file on the command line if there is no server; one in the environment may be for other commands.

    Raises:
        click.UsageError: No target is a server.
    """
    if not split_targets(targets)[1] and any(each.name == "pins" for each in typed_options(ctx)):
        raise click.UsageError("--pins holds servers to what they offered: the tools of a Python target are yours", ctx)
