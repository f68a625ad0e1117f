"""``bridge task``: look at a task of a server, wait for it, or cancel it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.completion import complete_first_word
from bridge.cli.options import ServerOptions, group_values, server_options, split_words, with_headers
from bridge.cli.reporting import FAILED, logging_option
from bridge.cli.results import write_result
from bridge.cli.targets.target import TargetCommand, only_remote_target
from bridge.cli.terminal import write_json, write_report
from bridge.errors import DefinitionError
from bridge.hosting.process import redirect_stdout, run_interruptible

if TYPE_CHECKING:
    from bridge.cli.interaction.questions import QuestionAnswerer
    from bridge.client.config.servers import ServerConfig
    from bridge.tools.task import Task
    from bridge.tools.tool import ToolExecutionResult


@click.command(cls=TargetCommand, short_help="Look at a task of a TARGET's server.")
@click.argument("words", nargs=-1, metavar="TARGET TASK", shell_complete=complete_first_word)
@click.option("--wait", is_flag=True, help="Wait for the end, and write the result as bridge call does.")
@click.option("--cancel", is_flag=True, help="Ask the server to cancel the task.")
@click.option("--json", "as_json", is_flag=True, help="Write the state, or with --wait the result, as MCP's JSON.")
@server_options("Timeout of each step, and of --wait, in seconds; by default that of the configuration.", asks=True)
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context, /, words: tuple[str, ...], wait: bool, cancel: bool, as_json: bool, **settings: Any
) -> int:
    """Look at the TASK that bridge call --detach has written, at the TARGET with the same server.

    The state and its message are written. With --wait, progress is shown and questions are answered as by bridge call;
    Ctrl-C leaves the task running. With a command as the target: bridge task TASK -- command args…
    """
    options, (given, waiting) = group_values(ServerOptions, settings), split_words(ctx, words)
    [target] = with_headers(ctx, [only_remote_target(ctx, given, "with tasks")], options.headers)
    if len(waiting) != 1:
        raise click.UsageError(f"one TASK is expected, not {len(waiting)}", ctx)
    if wait and cancel:
        raise click.UsageError("give --wait or --cancel, not both", ctx)
    answerer = options.questions.answerer(ctx)
    with redirect_stdout():
        from bridge.cli.targets.servers import servers_for_command  # noqa: PLC0415 - imports the SDK

        servers = servers_for_command(target, options)
        try:
            if wait:
                result = run_interruptible(_finished, servers, waiting[0], answerer)
            else:
                state = run_interruptible(_looked_at, servers, waiting[0], cancel)
        except DefinitionError as error:
            raise click.UsageError(str(error), ctx) from error
    if wait:
        write_result(result, "json" if as_json else "text")
        return FAILED if result.is_error else 0
    if as_json:
        from bridge.wire.tasks import task_to_wire  # noqa: PLC0415 - not needed for text

        write_json(task_to_wire(state))
    else:
        write_report(_described(state))
    return 0


async def _looked_at(servers: list[ServerConfig], text: str, cancel: bool) -> Task:
    from bridge.cli.targets.servers import provided_tools  # noqa: PLC0415 - imports the SDK

    async with provided_tools(servers) as provider:
        task = provider.task(text)
        if cancel:
            await task.cancel()
        return await task.status()


async def _finished(servers: list[ServerConfig], text: str, answerer: QuestionAnswerer | None) -> ToolExecutionResult:
    from bridge.cli.interaction.channel import CommandChannel  # noqa: PLC0415 - as above
    from bridge.cli.targets.servers import provided_tools  # noqa: PLC0415 - as above
    from bridge.tools.context import InvocationContext  # noqa: PLC0415 - as above

    async with provided_tools(servers, answerer) as provider:
        with CommandChannel(answerer) as channel:
            task = provider.task(text, context=InvocationContext(channel=channel))
            if answerer is not None:
                answerer.asker = f"the server {task.server!r}"
            return await task.result()


def _described(state: Task) -> str:
    """Describe a state, why the task has failed, and what it waits for."""
    failure = _failure_of(state)
    status = state.status if failure is None else "failed"
    reason = failure or state.status_message
    lines = [status if not reason else f"{status}: {reason}"]
    for key, question in state.questions.items():
        params = question.get("params")
        message = params.get("message") if isinstance(params, dict) else None
        lines.append(f"it asks {key!r}: {message or question.get('method')}")
    return "\n".join(lines)


def _failure_of(state: Task) -> str | None:
    """Return why a task has failed, by its tool or by its server; None if it has not."""
    if not state.outcome:
        return None
    outcome = json.loads(state.outcome)
    if state.status == "failed":
        return str(outcome.get("message") or state.status_message or "its server gives no reason")
    if outcome.get("isError") is not True:
        return None
    texts = [block["text"] for block in outcome.get("content", ()) if block.get("type") == "text"]
    return "\n".join(texts) or "its tool gives no reason"
