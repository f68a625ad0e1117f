"""``bridge read``: read one resource."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.completion import complete_uris
from bridge.cli.options import (
    ServerOptions,
    chosen_target,
    group_values,
    missing_name,
    output_option,
    server_options,
    split_words,
)
from bridge.cli.reporting import logging_option
from bridge.cli.targets.features import DEFAULT_TIMEOUT_SECONDS, contents_of, with_features
from bridge.cli.targets.target import TargetCommand
from bridge.cli.terminal import write_content, write_json
from bridge.hosting.process import print_message, redirect_stdout

if TYPE_CHECKING:
    from bridge.server.features import Features
    from bridge.tools.tool import ToolExecutionResult


@click.command(cls=TargetCommand, short_help="Read one resource of a TARGET.")
@click.argument("words", nargs=-1, metavar="TARGET URI", shell_complete=complete_uris)
@output_option("Write the content as it is, or the complete result as MCP's JSON.")
@server_options(
    f"Timeout of the read; by default {DEFAULT_TIMEOUT_SECONDS:g} seconds, or that of the configuration.", asks=True
)
@logging_option("warning")
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], output: str, **settings: Any) -> None:
    """Read the resource with this URI, and write its content.

    The content is written unchanged, also if it is binary. The URI may belong to a template, with its variables filled
    in. With a command as the target: bridge read URI -- command args…
    """
    options, (given, waiting) = group_values(ServerOptions, settings), split_words(ctx, words)
    target = chosen_target(ctx, given, options)
    if not waiting:
        raise missing_name(ctx, "the URI of a resource", given)
    if len(waiting) != 1:
        raise click.UsageError(f"one URI is expected, not {len(waiting)}", ctx)
    [uri] = waiting

    async def read(features: Features) -> ToolExecutionResult:
        return await contents_of(features, uri, options.timeout, answerer)

    answerer = options.questions.answerer(ctx)
    with redirect_stdout():
        result = with_features(target, options, read, answerer, uri=uri)
    if output == "json":
        from bridge.wire.resources import contents_to_wire  # noqa: PLC0415 - not needed for text

        write_json(contents_to_wire(result))
    else:
        _write(result)


def _write(result: ToolExecutionResult) -> None:
    """Write the contents one after another; on a terminal, control characters are escaped and bytes are described."""
    from bridge.tools.content import File, describe_block  # noqa: PLC0415 - after standard output is diverted

    for block in result.content:
        assert isinstance(block, File)
        if len(result.content) > 1:
            print_message(f"[{block.uri}]")
        if isinstance(block.content, bytes) and sys.stdout.isatty():
            print_message(f"{describe_block(block)}; redirect standard output to a file")
        else:
            write_content(block.content)
