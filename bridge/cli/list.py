"""``bridge list``: list the tools of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bridge.cli.assignments import parameters_of
from bridge.cli.completion import complete_targets
from bridge.cli.options import ServerOptions, check_pins, group_values, server_options, with_headers
from bridge.cli.reporting import configure_logging, log_level_option
from bridge.cli.targets import FileTarget, ModuleTarget, TargetCommand, only_target
from bridge.cli.terminal import write_data, write_json
from bridge.hosting.process import redirect_stdout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.cli.targets import Target
    from bridge.tools.specification import ToolSpecification

DEFAULT_TIMEOUT_SECONDS = 60.0
"""Default maximum seconds of a server."""

_SHOWN_LEVELS = 10
_SHOWN_KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@click.command(cls=TargetCommand, short_help="List the tools of a TARGET.")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option("--json", "as_json", is_flag=True, help="Write an array of objects, with the schemas.")
@server_options(f"Timeout of a server; by default {DEFAULT_TIMEOUT_SECONDS:g} seconds, or that of the configuration.")
@log_level_option("warning")
@click.pass_context
def command(ctx: click.Context, /, target: str | None, as_json: bool, log_level: str, **settings: Any) -> None:
    """List the tools of a TARGET, in its order.

    For a configuration, the tools of all its servers are listed, each name prefixed with its server's. An unavailable
    server that is not required is only reported.
    """
    configure_logging(log_level)
    options = group_values(ServerOptions, settings)
    [chosen] = with_headers(ctx, [only_target(ctx, target)], options.headers)
    check_pins(ctx, [chosen])
    with redirect_stdout():
        specifications = _specifications(chosen, options)
    if as_json:
        write_json([_as_json(specification) for specification in specifications])
    elif specifications:
        write_data("\n\n".join(map(described, specifications)))


def _specifications(target: Target, options: ServerOptions) -> Sequence[ToolSpecification]:
    if not isinstance(target, FileTarget | ModuleTarget):
        from bridge.cli import servers  # noqa: PLC0415 - the SDK takes most of a second to import

        return servers.list_tools(servers.servers_for_command(target, options))
    from bridge.cli.loading import load_toolbox  # noqa: PLC0415 - not needed for remote targets

    return [tool.specification for tool in load_toolbox([target])]


def _as_json(specification: ToolSpecification) -> dict[str, Any]:
    from bridge.wire.tools import tool_to_wire  # noqa: PLC0415 - not needed for text

    wire = tool_to_wire(specification)
    return {key: wire.get(key) for key in _SHOWN_KEYS}


def described(specification: ToolSpecification) -> str:
    """Describe a tool: its name, its description, and one line for each parameter."""
    title = f" ({_one_line(specification.title)})" if specification.title else ""
    lines = [f"{specification.name}{title}"]
    lines += [f"  {line}".rstrip() for line in (specification.description or "").splitlines()]
    required = specification.parameters.get("required")
    for name, schema in parameters_of(specification.parameters).items():
        is_required = isinstance(required, list) and name in required
        lines.append(f"    {_one_line(name)}: {_parameter(schema, is_required=is_required)}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _parameter(schema: Any, *, is_required: bool) -> str:
    if not isinstance(schema, dict):
        return "any"
    default = f", default {_compact(schema['default'])}" if "default" in schema else ""
    described = f"  {_one_line(schema['description'])}" if isinstance(schema.get("description"), str) else ""
    return _kind(schema) + ("" if is_required else f", optional{default}") + described


def _kind(schema: Mapping[str, Any], levels: int = _SHOWN_LEVELS) -> str:
    """Describe a parameter's type; empty for a malformed schema."""
    if not levels:
        return "any"
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            branches = (_kind(branch, levels - 1) for branch in schema[key] if isinstance(branch, dict))
            return " or ".join(dict.fromkeys(branches)) or "any"
    if "const" in schema or isinstance(schema.get("enum"), list):
        return " or ".join(map(_compact, [schema["const"]] if "const" in schema else schema["enum"]))
    if isinstance(schema.get("$ref"), str):
        return _one_line(schema["$ref"].rpartition("/")[2])
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"array of {_kind(schema['items'], levels - 1)}"
    kinds = kind if isinstance(kind, list) else [kind]
    return _one_line(" or ".join(each for each in kinds if isinstance(each, str))) or "any"


def _compact(value: Any) -> str:
    import json  # noqa: PLC0415

    return json.dumps(value, ensure_ascii=False)
