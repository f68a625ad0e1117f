"""``bridge call``: call one tool."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.assignments import read_assignments
from bridge.cli.completion import complete_words
from bridge.cli.options import (
    ServerOptions,
    chosen_target,
    group_values,
    missing_name,
    output_option,
    server_options,
    split_words,
    utf8_word,
)
from bridge.cli.reporting import FAILED, logging_option, users_traceback
from bridge.cli.results import write_result
from bridge.cli.targets.features import DEFAULT_TIMEOUT_SECONDS, in_use, reraise
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import LocalTarget, TargetCommand
from bridge.cli.terminal import write_data
from bridge.errors import ServerError, ToolCallError, ToolTimeoutError, UnknownToolError
from bridge.hosting.process import redirect_stdout, run_interruptible
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.cli.interaction.questions import QuestionAnswerer
    from bridge.cli.targets.target import RemoteTarget
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import ToolExecution, ToolExecutionResult


class _CallCommand(TargetCommand):
    """Command that explains how to write tool arguments, which users may confuse with options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Explain the form of a tool argument if an option is unknown."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            written = _as_assignment(error.option_name, given)
            message = f"{error.format_message()} Write an argument of the tool as {written}"
            raise click.UsageError(message, ctx) from None


def _as_assignment(option: str, words: list[str]) -> str:
    """Convert an option and its value to a tool argument."""
    name = option.lstrip("-").replace("-", "_")
    for word, following in pairwise([*words, ""]):
        if word == option and following and not following.startswith("-"):
            return f"{name}={following}"
        if word.startswith(f"{option}="):
            return f"{name}={word.removeprefix(f'{option}=')}"
    return f"{name}=VALUE"


@click.command(cls=_CallCommand, short_help="Call one tool of a TARGET.")
@click.argument("words", nargs=-1, metavar="TARGET TOOL [NAME=VALUE...]", shell_complete=complete_words)
@click.option(
    "--json",
    "json_text",
    metavar="OBJECT",
    help="All arguments as one JSON object instead of name=value; - reads it from standard input.",
)
@output_option("Write the text of the result, or the complete result as MCP's JSON.")
@click.option(
    "--detach",
    is_flag=True,
    help="Write the text of the task that the server makes of the call, for bridge task, and do not wait for its end.",
)
@server_options(
    f"Timeout of the call; by default {DEFAULT_TIMEOUT_SECONDS:g} seconds, or that of the configuration.", asks=True
)
@openapi_options
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context, /, words: tuple[str, ...], json_text: str | None, output: str, detach: bool, **settings: Any
) -> int:
    """Call one TOOL of a TARGET, and write the text of its result.

    Values are parsed by the tool's schema: text unchanged, numbers, booleans, arrays and objects as JSON. For an array,
    a name may be repeated, one item each. With a command as the target: bridge call TOOL name=value -- command args…

    If the tool fails, its message goes to standard error, and the exit code is 1. The text is not shortened, even if
    the tool has max_output_chars, which is for models.
    """
    options, (given, waiting) = group_values(ServerOptions, settings), split_words(ctx, words)
    target = chosen_target(ctx, given, options)
    if not waiting:
        raise missing_name(ctx, "the name of a TOOL", given)
    name, *assignments = waiting
    if assignments and json_text is not None:
        raise click.UsageError("arguments are given either as name=value or as --json", ctx)
    if detach and isinstance(target, LocalTarget):
        raise click.UsageError("--detach needs a server, whose task goes on when this command has ended", ctx)

    json_text = None if json_text is None else _json_text(ctx, json_text)

    def arguments_for(tool: ToolSpecification) -> Mapping[str, Any]:
        return read_assignments(assignments, tool.parameters) if json_text is None else _json_object(json_text)

    answerer = options.questions.answerer(ctx)
    with redirect_stdout():
        answer: ToolExecutionResult | str
        if isinstance(target, LocalTarget):
            seconds = options.timeout or DEFAULT_TIMEOUT_SECONDS
            execution = _call_here(target, name, arguments_for, seconds, answerer)
            answer, error = execution.result, execution.error
        else:
            answer, error = _call_there(target, options, name, arguments_for, answerer, detach=detach), None
    if isinstance(answer, str):
        write_data(answer)
        return 0
    is_printed = error is not None and not isinstance(error, ToolCallError)
    if error is not None and is_printed:
        click.echo(escape_controls(users_traceback(error)), err=True, nl=False)  # it ends with the error's message
    write_result(answer, output, is_printed=is_printed or _is_refusal(answer.text, answerer))
    return FAILED if answer.is_error else 0


def _is_refusal(text: str, answerer: QuestionAnswerer | None) -> bool:
    """Return True for an error that only repeats why a question was refused, which was printed then."""
    return answerer is not None and any(reason in text for reason in answerer.refusals)


def _json_text(ctx: click.Context, given: str) -> str:
    """JSON of the arguments; ``-`` stands for standard input."""
    if given != "-":
        return utf8_word(ctx, given)
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"standard input is not UTF-8: {error.reason}") from error


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--json is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError(f'--json must be an object, such as {{"name": 1}}, not {text[:200]!r}')
    return value


def _call_here(
    target: LocalTarget,
    name: str,
    arguments_for: Callable[[ToolSpecification], Mapping[str, Any]],
    timeout_seconds: float,
    answerer: QuestionAnswerer | None,
) -> ToolExecution:
    """Run a tool in this process; after a timeout it may continue in a thread."""
    from bridge.cli.interaction.channel import CommandChannel  # noqa: PLC0415
    from bridge.cli.targets.loading import load_features, tools_of  # noqa: PLC0415
    from bridge.tools.context import InvocationContext  # noqa: PLC0415
    from bridge.tools.execution import ExecutionPolicy, execute_timed  # noqa: PLC0415
    from bridge.tools.tool import ToolExecution, ToolExecutionRequest  # noqa: PLC0415

    features = load_features([target])
    tools = features.tools

    def requested() -> ToolExecutionRequest:
        tools_of(features, [target])
        if name not in tools and "=" in name:
            raise _tool_missing(name, [tool.name for tool in tools])
        return ToolExecutionRequest(name, arguments_for(tools.get(name).specification))

    known = None if features.mounted_lifespans else requested()  # servers list their tools once they run
    policy = ExecutionPolicy(on_arguments_error=reraise, on_execution_error=_as_result)
    if answerer is not None:
        answerer.asker = f"the tool {name!r}"

    async def run() -> ToolExecution:
        started_at = datetime.now(UTC)
        with CommandChannel(answerer) as channel:
            context = InvocationContext(channel=channel, lifespan=features.lifespan)
            request = known
            try:
                async with in_use(features):
                    request = known or requested()
                    call = partial(execute_timed, tools, request, context, policy)
                    return await channel.within(timeout_seconds, name, call)
            except ToolTimeoutError as error:
                assert request is not None, "it was called"
                return ToolExecution(
                    request=request,
                    result=_as_result(error),
                    started_at=started_at,
                    duration_seconds=timeout_seconds,
                    error=error,
                )

    return run_interruptible(run)


def _call_there(
    target: RemoteTarget,
    options: ServerOptions,
    name: str,
    arguments_for: Callable[[ToolSpecification], Mapping[str, Any]],
    answerer: QuestionAnswerer | None,
    *,
    detach: bool,
) -> ToolExecutionResult | str:
    """Call a tool of a server."""
    from bridge.cli.targets import servers  # noqa: PLC0415 - importing the SDK takes most of a second
    from bridge.tools.tool import ToolExecutionResult  # noqa: PLC0415 - as above

    found = servers.servers_for_command(target, options)
    try:
        return servers.call_tool(found, name, arguments_for, answerer, detach=detach)
    except UnknownToolError as missing:
        raise (_tool_missing(name) if "=" in name else missing) from None
    except ServerError as failed:
        if _is_refusal(str(failed), answerer):
            return ToolExecutionResult.error(str(failed))
        raise


def _tool_missing(word: str, names: Sequence[str] = ()) -> click.UsageError:
    only = f"; the only tool is {names[0]}" if len(names) == 1 else ""
    return click.UsageError(f"the name of a TOOL is missing before {word!r}{only}")


def _as_result(error: Exception, *_: object) -> ToolExecutionResult:
    """Create a failed result without logging; the command prints the error itself."""
    from bridge.tools.tool import ToolExecutionResult  # noqa: PLC0415 - not needed for remote targets

    return ToolExecutionResult.error(str(error) or type(error).__name__)
