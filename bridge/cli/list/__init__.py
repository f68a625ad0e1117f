"""``bridge list``: list the tools, resources, prompts, skills and events of a target."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bridge.cli.completion import complete_targets
from bridge.cli.list import costs, overview
from bridge.cli.list.parameters import FULL, SHORT, one_line, parameter_lines
from bridge.cli.options import ServerOptions, chosen_target, group_values, server_options
from bridge.cli.reporting import logging_option
from bridge.cli.targets.features import DEFAULT_TIMEOUT_SECONDS, events_of, skills_of, with_features
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import TargetCommand, with_profile
from bridge.cli.terminal import write_json, write_report
from bridge.hosting.process import redirect_stdout
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.cli.list.parameters import Detail
    from bridge.events.event_type import EventType
    from bridge.prompts.prompt import Prompt
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.features import Features
    from bridge.skills.skill import Skill
    from bridge.tools.specification import ToolSpecification


@click.command(cls=TargetCommand, short_help="List the tools, resources, prompts, skills and events of a TARGET.")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option("--json", "as_json", is_flag=True, help="Write all that a server lists, as MCP's JSON.")
@click.option("--brief", is_flag=True, help="Show a line for each: its name, its parameters, and a first sentence.")
@click.option("--full", is_flag=True, help="Show nested fields at all levels, and all choices.")
@click.option(
    "--tokens", is_flag=True, help="Show what the definitions of the tools cost in each request of a model, estimated."
)
@click.option("--profile", help="Profile of a configuration, or of a gateway at a URL, whose items are listed.")
@server_options(f"Timeout of a server; by default {DEFAULT_TIMEOUT_SECONDS:g} seconds, or that of the configuration.")
@openapi_options
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    target: str | None,
    as_json: bool,
    brief: bool,
    full: bool,
    tokens: bool,
    profile: str | None,
    **settings: Any,
) -> None:
    """List the tools of a TARGET, its resources, prompts, skills and types of events, in its order.

    For a configuration, those of all its servers are listed, each name prefixed with its server's. An unavailable
    server that is not required is only reported.
    """
    chosen_forms = [name for name, is_chosen in (("brief", brief), ("full", full), ("tokens", tokens)) if is_chosen]
    if len(chosen_forms) > 1:
        raise click.UsageError(" and ".join(f"--{each}" for each in chosen_forms) + " exclude each other", ctx)
    options = group_values(ServerOptions, settings)
    chosen, profile = with_profile(chosen_target(ctx, target, options), profile)

    async def listed(features: Features) -> Listing:
        return Listing(features, await skills_of(features), await events_of(features))

    with redirect_stdout():
        listing = with_features(chosen, options, listed, profile=profile)
        tools = listing.features.tools
        if tokens:
            data = costs.as_json(tools) if as_json else costs.as_text(tools)
        elif as_json:
            data = _as_json(listing)
        elif brief:
            data = overview.as_text(listing.features, listing.skills, listing.events)
        else:
            data = _as_text(listing, FULL if full else SHORT)
    if isinstance(data, dict):
        write_json(data)
    elif data:
        write_report(data, style=None if brief else _styled)


class Listing(NamedTuple):
    """Everything that a target offers."""

    features: Features
    skills: Sequence[Skill]
    events: Sequence[EventType]


def _as_json(listing: Listing) -> dict[str, Any]:
    from bridge.wire.events import event_type_to_wire  # noqa: PLC0415 - not needed for text
    from bridge.wire.prompts import prompt_to_wire  # noqa: PLC0415 - not needed for text
    from bridge.wire.resources import resource_to_wire, template_to_wire  # noqa: PLC0415 - as above
    from bridge.wire.skills import skill_to_wire  # noqa: PLC0415 - as above
    from bridge.wire.tools import tool_to_wire  # noqa: PLC0415 - as above

    features, resources = listing.features, listing.features.resources
    return {
        "tools": [tool_to_wire(tool.specification) for tool in features.tools],
        "resources": [resource_to_wire(each) for each in resources.resources] if resources else [],
        "resourceTemplates": [template_to_wire(each) for each in resources.templates] if resources else [],
        "prompts": [prompt_to_wire(prompt) for prompt in features.prompts or ()],
        "skills": [skill_to_wire(skill) for skill in listing.skills],
        "events": [event_type_to_wire(each, each.delivery) for each in listing.events],
    }


def _styled(line: str) -> str:
    """Make a line bold that is not indented: the name of a tool, or a heading."""
    return click.style(line, bold=True) if line and not line[0].isspace() else line


def _as_text(listing: Listing, detail: Detail) -> str:
    """Describe tools; resources, prompts, skills and events follow under headings."""
    features, skills, box = listing.features, listing.skills, listing.features.resources
    files = {skill.uri for skill in skills}
    resources: list[Resource | ResourceTemplate] = [] if box is None else [*box.resources, *box.templates]
    resources = [each for each in resources if getattr(each, "uri", None) not in files]
    lists = {
        "Tools:": [described(tool.specification, detail) for tool in features.tools],
        "Resources:": list(map(_described_resource, resources)),
        "Prompts:": list(map(_described_prompt, features.prompts or ())),
        "Skills:": [_entry(skill.uri, _files_of(skill), skill.description) for skill in skills],
        "Events:": [_described_event(each, detail) for each in listing.events],
    }
    given = {heading: texts for heading, texts in lists.items() if texts}
    if given.keys() <= {"Tools:"}:
        return "\n\n".join(lists["Tools:"])
    parts = [part for heading, texts in given.items() for part in (heading, *(indent(text, "  ") for text in texts))]
    return "\n\n".join(parts)


def _described_resource(item: Resource | ResourceTemplate) -> str:
    """Describe a resource: its URI, or that of a template, its title and media type, and its description."""
    uri = str(item.uri_template) if hasattr(item, "uri_template") else item.uri
    return _entry(uri, item.title or item.name, item.description, item.mime_type)


def _described_prompt(prompt: Prompt) -> str:
    """Describe a prompt: its name, its description, and one line for each argument."""
    lines = [_entry(prompt.name, prompt.title, prompt.description)]
    for argument in prompt.arguments:
        optional = "" if argument.required else ": optional"
        description = f"  {one_line(argument.description)}" if argument.description else ""
        lines.append(f"    {one_line(argument.name)}{optional}{description}")
    return "\n".join(lines)


def _described_event(type_: EventType, detail: Detail) -> str:
    """Describe a type of events: its name, its description, and one line for each argument of a subscription."""
    entry = _entry(type_.name, type_.title, type_.description)
    return "\n".join([entry, *(f"    {line}" for line in parameter_lines(type_.input_schema, detail))])


def _files_of(skill: Skill) -> str:
    """Describe the content of a skill, which the instructions are part of."""
    if skill.files is None:
        return "generated, cannot be verified"
    return f"{with_count(len(skill.files), 'file')}, {sum(each.size for each in skill.files):,} bytes"


def described(specification: ToolSpecification, detail: Detail = SHORT) -> str:
    """Describe a tool: its name, its description, and one line for each parameter, with indented ones for fields."""
    entry = _entry(specification.name, specification.title, specification.description)
    return "\n".join([entry, *(f"    {line}" for line in parameter_lines(specification.parameters, detail))])


def _entry(key: str, title: str | None, description: str | None, kind: str | None = None) -> str:
    """Describe an item: a line with its key, title and media type, and its description."""
    first = key + (f" ({one_line(title)})" if title else "") + (f"  {one_line(kind)}" if kind else "")
    return "\n".join([first, *(f"  {line}".rstrip() for line in (description or "").splitlines())])
