"""Headers: the option by which a command gives a server behind a URL what goes with every request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import click

from bridge.cli.targets import UrlTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.cli.targets import Target

_AnyTarget = TypeVar("_AnyTarget", bound="Target")

header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="What goes with every request to a URL: --header 'Authorization: Bearer ${KEY}', in single quotes, takes the "
    "key out of the variable KEY. Repeatable.",
)
"""``--header``, which gives ``headers``."""


def with_headers(
    ctx: click.Context, targets: Sequence[_AnyTarget], texts: Sequence[str]
) -> list[_AnyTarget | UrlTarget]:
    """Targets, of which the one that is a URL is given headers; what a header holds is in no error.

    Args:
        ctx: The command.
        targets: The targets.
        texts: The headers as they were given.

    Raises:
        click.UsageError: One is not written as it has to be, or it is not plain which server it is for.
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
