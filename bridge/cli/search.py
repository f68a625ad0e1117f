"""``bridge search``: find servers in a registry."""

from __future__ import annotations

import click

from bridge.cli.options import registry_option
from bridge.cli.reporting import CommandError, logging_option
from bridge.cli.terminal import write_json, write_report
from bridge.errors import WireError
from bridge.hosting.process import print_message

_DEFAULT_LIMIT = 20


@click.command(short_help="Find servers in a registry.")
@click.argument("words", nargs=-1, required=True)
@registry_option
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="SERVERS",
    default=_DEFAULT_LIMIT,
    help="Maximum number of servers.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the server.json of each.")
@logging_option("warning")
def command(words: tuple[str, ...], registry: str, limit: int, as_json: bool) -> int:
    """Find the servers of a registry by WORDS of their names, in their newest versions.

    The registry is that of --registry, with the API v0.1. bridge add adds one of them to mcp.json.
    """
    from bridge.client.registry import Registry  # noqa: PLC0415 - after usage errors

    try:
        found = Registry(registry).search(" ".join(words), limit)
    except WireError as error:
        raise CommandError(str(error)) from error
    if as_json:
        write_json([each.document for each in found])
        return 0
    for each in found:
        mark = "" if each.status == "active" else f" ({each.status})"
        description = " ".join(str(each.document.get("description", "")).split())
        write_report(f"{each.name} {each.document.get('version', '')}{mark}\n  {description}")
    if not found:
        print_message(f"no server of {registry} has {' '.join(words)!r} in its name")
    return 0 if found else 1
