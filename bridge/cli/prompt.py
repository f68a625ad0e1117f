"""``bridge prompt``: render one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bridge.cli.assignments import read_assignments
from bridge.cli.completion import complete_prompts
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
from bridge.cli.targets.features import DEFAULT_TIMEOUT_SECONDS, produced, prompt_named, with_features
from bridge.cli.targets.target import TargetCommand
from bridge.cli.terminal import write_data, write_json
from bridge.hosting.process import redirect_stdout

if TYPE_CHECKING:
    from bridge.prompts.prompt import Prompt
    from bridge.server.features import Features
    from bridge.tools.tool import ToolExecutionResult


@click.command(cls=TargetCommand, short_help="Render one prompt of a TARGET.")
@click.argument("words", nargs=-1, metavar="TARGET PROMPT [NAME=VALUE...]", shell_complete=complete_prompts)
@output_option("Write the text of the messages, or the complete result as MCP's JSON.")
@server_options(f"Timeout; by default {DEFAULT_TIMEOUT_SECONDS:g} seconds, or that of the configuration.", asks=True)
@logging_option("warning")
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], output: str, **settings: Any) -> None:
    """Render one PROMPT of a TARGET with these arguments, and write its messages.

    A single message is written as its text, several with the role of each. Content other than text is described;
    --output json has it. With a command as the target: bridge prompt PROMPT name=value -- command args…
    """
    options, (given, waiting) = group_values(ServerOptions, settings), split_words(ctx, words)
    target = chosen_target(ctx, given, options)
    if not waiting or "=" in waiting[0]:
        raise missing_name(ctx, "the name of a PROMPT", given)
    name, *assignments = waiting
    texts = {"properties": {word.partition("=")[0]: {"type": "string"} for word in assignments}}

    async def render(features: Features) -> tuple[Prompt, ToolExecutionResult]:
        prompt = prompt_named(features, name)
        arguments = read_assignments(assignments, texts)
        return prompt, await produced(prompt.tool, arguments, options.timeout, answerer, features.lifespan)

    answerer = options.questions.answerer(ctx)
    with redirect_stdout():
        prompt, result = with_features(target, options, render, answerer, name=name)
    if output == "json":
        from bridge.wire.prompts import messages_to_wire  # noqa: PLC0415 - not needed for text

        write_json(messages_to_wire(result, prompt.description))
        return
    from bridge.tools.content import describe_block  # noqa: PLC0415 - after standard output is diverted

    is_one = len(result.value) == 1
    messages = ((message.role, describe_block(message.content)) for message in result.value)
    write_data("\n\n".join(text if is_one else f"{role}:\n{text}" for role, text in messages))
