"""``bridge chat``: a terminal conversation with a chat model that uses tools."""

from __future__ import annotations

import os
from typing import Any

import click

from bridge.cli.chat.conversation import ConversationOptions, converse
from bridge.cli.chat.display import Display
from bridge.cli.completion import complete_targets
from bridge.cli.options import chat_model_of, group_values, header_option, option, prefix_option, with_headers
from bridge.cli.reporting import logging_option
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import TargetCommand, given_targets
from bridge.hosting.process import run_interruptible


@click.command(cls=TargetCommand, short_help="Talk to a chat model that uses the tools of TARGETs.")
@click.argument("targets", nargs=-1, metavar="[TARGET...]", shell_complete=complete_targets)
@option("--model", required=True, metavar="PROVIDER:NAME", help="openai:NAME, anthropic:NAME or bedrock:NAME.")
@option("--base-url", metavar="URL", help="Base URL of another server with the provider's API.")
@click.option("--system", help="System message for the model.")
@option(
    "--memory",
    type=click.Path(dir_okay=False),
    help="Store the conversation in a SQLite file, or in a Redis database, such as redis://localhost:6379/1.",
)
@click.option(
    "--approve",
    type=click.Choice(["ask", "auto", "deny"]),
    default="ask",
    show_default=True,
    help="Handling of calls of tools that are not annotated as read-only: ask, allow or deny. Annotations of a server "
    "count only if its configuration marks it as trusted.",
)
@click.option(
    "--hide-errors",
    is_flag=True,
    help="Do not send the texts of exceptions, except ToolError, to the model; they are logged instead.",
)
@header_option
@prefix_option
@click.option("--no-history", is_flag=True, help="Do not keep the questions in a file for later conversations.")
@click.option("--once", metavar="QUESTION", help="Ask one question, write the answer to standard output, and exit.")
@openapi_options
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    model: str,
    base_url: str | None,
    headers: tuple[str, ...],
    **settings: Any,
) -> int:
    """Talk to a chat model that uses the tools of any number of TARGETs.

    The answer is streamed to standard output, on a terminal as Markdown; each tool call, its result and its cost are
    shown on standard error. /help lists what can be typed. Ctrl-C stops an answer; the end of the input (Ctrl-D) ends
    the conversation. The extra cli brings line editing, history, completion and Markdown.
    """
    chat_model = chat_model_of(ctx, model, base_url)
    meant = with_headers(ctx, given_targets(ctx, targets), headers)
    # Output of tools must not mix with the answer.
    output = os.dup(1)
    os.dup2(2, 1)
    options = group_values(ConversationOptions, settings)
    return run_interruptible(converse, meant, chat_model, options, Display(output))
