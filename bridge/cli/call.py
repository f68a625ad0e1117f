"""``bridge call``: one call of one tool."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from bridge.cli.assignments import read_assignments, unknown_names
from bridge.cli.failures import FAILED, end_now, say
from bridge.cli.list import DEFAULT_TIMEOUT_SECONDS, only_target
from bridge.cli.logs import configure_logging, log_level_option
from bridge.cli.output import stdout_diverted, write_data, write_json
from bridge.cli.pins import pins_options
from bridge.cli.targets import FileTarget, ModuleTarget, TargetCommand, command_target
from bridge.errors import ToolTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bridge.cli.targets import LocalTarget
    from bridge.client.pinning import PinMode
    from bridge.tools.content import Content
    from bridge.tools.model import ToolExecutionResult, ToolSpecification


@click.command(cls=TargetCommand, short_help="Call one tool of a TARGET.")
@click.argument("words", nargs=-1, metavar="TARGET TOOL [NAME=VALUE...]")
@click.option("--json", "json_text", metavar="OBJECT", help="All arguments as one JSON object, instead of name=value.")
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The text of the result, or all of it as MCP writes it.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    help=f"How many seconds the call may take; {DEFAULT_TIMEOUT_SECONDS:g} unless a configuration says otherwise.",
)
@pins_options
@log_level_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    json_text: str | None,
    output: str,
    timeout: float | None,
    pins: Path | None,
    pin_mode: PinMode,
    log_level: str,
) -> int:
    """Call one TOOL of a TARGET, and write the text of its result.

    Values are read by the tool's schema: text as it is, numbers, booleans, arrays and objects as JSON; for an array a
    name may be repeated, one item each. With a command as the target: bridge call TOOL name=value -- command args…

    Ends with code 1 where the tool failed; what it said of that goes to standard error.
    """
    configure_logging(log_level)
    waiting = list(words)
    target = only_target(ctx, None if command_target(ctx) or not waiting else waiting.pop(0))
    if not waiting:
        raise click.UsageError("the name of a TOOL is missing", ctx)
    name, *assignments = waiting
    if assignments and json_text is not None:
        raise click.UsageError("arguments come either as name=value or as --json", ctx)

    def arguments_for(tool: ToolSpecification) -> Mapping[str, Any]:
        return _json_object(json_text) if json_text is not None else _assigned(assignments, tool)

    with stdout_diverted():
        if isinstance(target, FileTarget | ModuleTarget):
            seconds = timeout or DEFAULT_TIMEOUT_SECONDS
            result, has_run_out_of_time = _call_here(target, name, arguments_for, seconds)
        else:
            from bridge.cli import servers  # noqa: PLC0415 - the SDK takes most of a second to import

            found = [servers.hurried(server, timeout) for server in servers.servers_of(target)]
            result = servers.call_tool(servers.pinned(found, pins, pin_mode), name, arguments_for)
            has_run_out_of_time = False
    _write(result, output)
    code = FAILED if result.is_error else 0
    return end_now(code) if has_run_out_of_time else code


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--json is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError(f'--json must be an object, such as {{"name": 1}}, not {text!r}')
    return value


def _assigned(assignments: list[str], tool: ToolSpecification) -> dict[str, Any]:
    arguments = read_assignments(assignments, tool.parameters)
    known = ", ".join(tool.parameters.get("properties", {})) or "none"
    for unknown in unknown_names(arguments, tool.parameters):
        say(f"bridge call: {tool.name!r} has no parameter {unknown!r}; it has {known}")
    return arguments


def _call_here(
    target: LocalTarget,
    name: str,
    arguments_for: Callable[[ToolSpecification], Mapping[str, Any]],
    timeout_seconds: float,
) -> tuple[ToolExecutionResult, bool]:
    """Run a tool of this process, without a server.

    Returns:
        The result, and whether the tool ran out of time, so that it may run on in a thread.
    """
    import anyio  # noqa: PLC0415 - a remote target does without these

    from bridge.cli.loading import load_toolbox  # noqa: PLC0415
    from bridge.tools.context import InvocationContext  # noqa: PLC0415
    from bridge.tools.execution import ExecutionPolicy, execute_timed  # noqa: PLC0415
    from bridge.tools.model import ToolExecutionRequest  # noqa: PLC0415

    tools = load_toolbox([target])
    request = ToolExecutionRequest(name, arguments_for(tools.get(name).specification))
    policy = ExecutionPolicy(on_arguments_error=_raise, timeout_seconds=timeout_seconds)
    execution = anyio.run(execute_timed, tools, request, InvocationContext(), policy)
    return execution.result, isinstance(execution.error, ToolTimeoutError)


def _raise(error: Exception, *_: object) -> NoReturn:
    raise error


def _write(result: ToolExecutionResult, output: str) -> None:
    if output == "json":
        from bridge.wire import result_to_wire  # noqa: PLC0415 - text does without it

        write_json(result_to_wire(replace(result, model_content=None)))
    elif result.is_error:
        say(result.text)
    elif result.text or result.structured_content is None:
        write_data(result.text)
    else:
        write_json(result.structured_content)
    if output == "text":
        for block in result.content:
            _note(block)


def _note(block: Content) -> None:
    """Say on standard error what standard output leaves out."""
    from bridge.tools.content import File, ResourceLink, Text  # noqa: PLC0415

    if isinstance(block, Text):
        return
    if isinstance(block, ResourceLink):
        say(f"[link to {block.uri}]")
    elif isinstance(block, File):
        unit = "characters" if isinstance(block.content, str) else "bytes"
        say(f"[file {block.uri}, {len(block.content)} {unit}; --output json has it]")
    else:
        say(f"[{block.mime_type}, {len(block.data)} bytes; --output json has it]")
