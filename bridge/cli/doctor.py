"""``bridge doctor``: check targets before they are deployed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import bridge
from bridge.cli.completion import complete_targets
from bridge.cli.install.clients import CLIENTS
from bridge.cli.options import check_pins, header_option, option, prefix_option, timeout_option, with_headers
from bridge.cli.reporting import FAILED, logging_option
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import (
    CommandTarget,
    ConfigTarget,
    LocalTarget,
    OpenApiTarget,
    TargetCommand,
    UrlTarget,
    command_target,
    given_targets,
    parse_target,
    target_argument,
)
from bridge.cli.terminal import coloured, write_json, write_report
from bridge.errors import ConfigError, TargetError
from bridge.hosting.process import redirect_stdout, run_interruptible
from bridge.text import clip, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bridge.cli.install.clients import Client
    from bridge.cli.targets.target import RemoteTarget, Target
    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.doctor.rule import Finding, Rule
    from bridge.doctor.subject import Subject


class _RuleName(click.ParamType["tuple[Rule, str]"]):
    """Name of a rule, and, after a colon, the name of an object; empty for all objects."""

    name = "rule"

    def __init__(self, *, takes_object: bool) -> None:
        self._takes_object = takes_object

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Find the rule."""
        from bridge.doctor.rules import RULES  # noqa: PLC0415 - slow to import, and not needed for help

        name, _, of = value.partition(":") if self._takes_object else (value, "", "")
        if name not in RULES:
            near = nearest(name, RULES)
            self.fail(f"there is no rule {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""), param, ctx)
        return RULES[name], of


_INSTALL = "bridge install tools.py"
_LOG_LINES, _MAX_LINE_CHARS = 10, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerSettings:
    """Options for the servers of remote targets."""

    timeout_seconds: float | None
    pins: Path | None
    prefix: Prefixing | None
    is_alone: bool


@click.command(cls=TargetCommand, short_help="Check TARGETs before they are deployed.")
@click.argument("targets", metavar="TARGET...", nargs=-1, shell_complete=complete_targets)
@click.option(
    "--client",
    "client_name",
    type=click.Choice(list(CLIENTS)),
    metavar="CLIENT",
    help="In place of a TARGET: check the configuration of this client, and show the end of its logs. The clients are "
    "those of bridge install.",
)
@click.option("--json", "as_json", is_flag=True, help="Write an object with findings, tokens and providers' schemas.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Write SARIF 2.1.0, for code scanning.")
@click.option("--notes", is_flag=True, help="Show notes, too; JSON and SARIF always contain them.")
@click.option(
    "--rule",
    "rules",
    type=_RuleName(takes_object=False),
    multiple=True,
    metavar="RULE",
    help="Apply only this rule. Repeatable.",
)
@click.option(
    "--ignore",
    "accepted",
    type=_RuleName(takes_object=True),
    multiple=True,
    metavar="RULE[:NAME]",
    help="Accept findings of a rule, or only those about the tool, server or other object of this name. Repeatable.",
)
@timeout_option("Timeout of each step of a server, such as to start or to answer, in seconds.")
@header_option
@option(
    "--pins",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Lock file of `bridge pin` to compare with; by default that of the configuration, or else mcp.lock.json "
    "next to it.",
)
@prefix_option
@openapi_options
@logging_option("error")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: Sequence[str],
    client_name: str | None,
    as_json: bool,
    as_sarif: bool,
    notes: bool,
    rules: Sequence[tuple[Rule, str]],
    accepted: Sequence[tuple[Rule, str]],
    timeout: float | None,
    headers: Sequence[str],
    pins: Path | None,
    prefix: Prefixing | None,
) -> int:
    """Check targets: their configuration, servers and definitions. With --client, say why a client sees no server.

    Python files are imported, and servers started or connected to; nothing else is contacted, and no tool is
    called. The exit code is 1 if there are errors or warnings. docs/reference/doctor.md explains every rule.
    """
    client = None if client_name is None else CLIENTS[client_name]
    if client is not None and (targets or command_target(ctx) is not None):
        raise click.UsageError("--client is in place of a TARGET; leave one out", ctx)
    is_alone = client is None and len(targets) + (command_target(ctx) is not None) == 1
    unusable = {} if is_alone else _unusable(targets)
    chosen = with_headers(ctx, given_targets(ctx, [text for text in targets if text not in unusable]), headers)
    if client is None and not chosen and not unusable:
        raise click.UsageError("a TARGET is missing, such as tools.py", ctx)
    if client is None and not unusable:
        check_pins(ctx, chosen)
    if as_json and as_sarif:
        raise click.UsageError("--json and --sarif exclude each other", ctx)
    settings = _ServerSettings(timeout_seconds=timeout, pins=pins, prefix=prefix, is_alone=is_alone)
    with redirect_stdout():
        subject = _subject(chosen, unusable, settings) if client is None else _of_client(client, settings)
        findings = _findings(subject, [rule for rule, _ in rules], accepted)
    _write(findings, subject, as_json=as_json, as_sarif=as_sarif, shows_notes=notes)
    if client is not None and not (as_json or as_sarif):
        write_report("\n".join(_logs(client, subject)))
    return FAILED if any(finding.rule.level != "note" for finding in findings) else 0


def _of_client(client: Client, settings: _ServerSettings) -> Subject:
    """Examine the configuration of a client."""
    from bridge.doctor import subject as subjects  # noqa: PLC0415 - after usage errors

    target = ConfigTarget(client.file().absolute())
    if os.path.lexists(target.path) and not target.path.is_file():
        return _subject([], {str(target.path): "is not a regular file: move it away"}, settings)
    if (reason := _why_without_servers(client, target.path)) is not None:
        item = subjects.Item(kind="target", name=_shown(target), source=_shown(target))
        missing = reason, f"{_INSTALL} --client {client.name} adds one"
        return subjects.Subject(targets=(subjects.Target(item=item, without_servers=missing),))
    subject = _subject([target], {}, settings)
    servers = (replace(server, client=client.title or "the client") for server in subject.servers)
    return replace(subject, servers=tuple(servers))


def _why_without_servers(client: Client, path: Path) -> str | None:
    """Explain why a client has no servers; None if it has some, or its file cannot be read."""
    from bridge.client.config.hosts import parse_document  # noqa: PLC0415 - after usage errors
    from bridge.client.config.loading import load_entries  # noqa: PLC0415 - likewise

    try:
        text = path.read_text(encoding="utf-8-sig").strip()
        document = parse_document(text, str(path)) if text else {}
        servers = document.get(client.section) if isinstance(document, dict) else document
        is_empty = servers is None if not isinstance(servers, dict) else not load_entries(path)
    except FileNotFoundError:
        return "there is no such file, and so no servers"
    except (ConfigError, OSError, UnicodeDecodeError):
        return None
    is_read_anyway = client.title is None and bool(document)
    return f"no servers yet under {client.section!r}" if is_empty and not is_read_anyway else None


def _logs(client: Client, subject: Subject) -> Iterator[str]:
    """Describe how to see the client's own view of its servers, and yield the last lines of its logs."""
    title = client.title or "the client"
    for server in subject.servers:
        found = client.last_lines(server.item.name, _LOG_LINES)
        if found is None and client.log is not None:
            yield f"{title} has no log of {server.item.name!r} yet at {client.log(server.item.name)}: restart {title}"
        elif found is not None:
            yield f"{found[0]} ends with:"
            yield from (f"  {clip(line, _MAX_LINE_CHARS)}" for line in found[1])
    hint = f"; to see its servers there: {client.check}" if client.check else ""
    yield f"{title} reads {client.file()}, and takes changes after a restart{hint}"


def _unusable(texts: Sequence[str]) -> dict[str, str]:
    """Targets that do not exist, and why; the others are examined nevertheless."""
    problems: dict[str, str] = {}
    for text in texts:
        try:
            parse_target(text)
        except TargetError as error:
            problems[text] = str(error)
    return problems


def _findings(subject: Subject, rules: Sequence[Rule], accepted: Sequence[tuple[Rule, str]]) -> list[Finding]:
    from bridge.doctor.rules import examine  # noqa: PLC0415 - after usage errors

    accepts = {(rule.name, of) for rule, of in accepted}
    return [
        finding
        for finding in examine(subject, rules or None)
        if accepts.isdisjoint({(finding.rule.name, ""), (finding.rule.name, finding.problem.item.name)})
    ]


def _write(findings: Sequence[Finding], subject: Subject, *, as_json: bool, as_sarif: bool, shows_notes: bool) -> None:
    from bridge.doctor import reports, sarif  # noqa: PLC0415 - after usage errors

    if as_sarif:
        write_json(sarif.as_sarif(findings, bridge.__version__))
    elif as_json:
        write_json(reports.as_json(findings, subject))
    else:
        write_report(reports.as_text(findings, subject, shows_notes=shows_notes), style=_styled)


def _styled(line: str) -> str:
    """Colour the level of a finding."""
    from bridge.doctor.rule import LEVELS  # noqa: PLC0415 - after usage errors

    level, colon, rest = line.partition(": ")
    return f"{coloured(level)}{colon}{rest}" if level in LEVELS else line


def _subject(targets: Sequence[Target], unusable: Mapping[str, str], settings: _ServerSettings) -> Subject:
    from bridge.doctor import subject as subjects  # noqa: PLC0415 - after usage errors

    parts = [
        _of_python(target) if isinstance(target, LocalTarget) else _of_servers(target, settings) for target in targets
    ]
    missing = [
        subjects.Target(item=subjects.Item(kind="target", name=text, source=text), problems=(problem,))
        for text, problem in unusable.items()
    ]
    return subjects.Subject(
        targets=(*missing, *(target for part in parts for target in part.targets)),
        servers=tuple(server for part in parts for server in part.servers),
        definitions=tuple(definition for part in parts for definition in part.definitions),
    )


def _of_python(target: LocalTarget) -> Subject:
    from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - not needed for remote targets
    from bridge.doctor import subject as subjects  # noqa: PLC0415 - after usage errors

    item = subjects.Item(kind="target", name=_shown(target), source=_shown(target))
    try:
        features = load_features([target])
    except TargetError as error:
        return subjects.Subject(targets=(subjects.Target(item=item, problems=(str(error),)),))
    return subjects.Subject(
        targets=(subjects.Target(item=item),),
        definitions=tuple(subjects.bounded(subjects.local_definitions(features, item.source))),
    )


def _of_servers(target: RemoteTarget, settings: _ServerSettings) -> Subject:
    from bridge.cli.targets.servers import read_configuration, servers_of  # noqa: PLC0415 - after usage errors
    from bridge.doctor import subject as subjects  # noqa: PLC0415 - after usage errors
    from bridge.doctor.connecting import connect, entries_of  # noqa: PLC0415 - likewise

    item = subjects.Item(kind="target", name=_shown(target), source=_shown(target))
    warnings: tuple[str, ...] = ()
    try:
        if isinstance(target, ConfigTarget):
            config = read_configuration(target, is_alone=settings.is_alone)
            warnings = config.warnings
            if target.server is not None and target.server not in config.servers:
                raise TargetError(f"{target.path}: {config.why_missing(target.server)}")
            servers = [each for each in config.servers.values() if target.server in {None, each.name}]
        else:
            servers = servers_of(target, is_alone=settings.is_alone)
        servers = [_adjusted(server, target, settings) for server in servers]
    except ConfigError as error:
        return subjects.Subject(targets=(subjects.Target(item=item, problems=tuple(map(str, error.problems))),))
    entries = entries_of(target.path) if isinstance(target, ConfigTarget) and not target.is_bundle else {}
    found, definitions = run_interruptible(connect, servers, item.source, entries)
    examined = subjects.Target(item=item, warnings=warnings)
    return subjects.Subject(targets=(examined,), servers=tuple(found), definitions=tuple(subjects.bounded(definitions)))


def _adjusted(server: ServerConfig, target: RemoteTarget, settings: _ServerSettings) -> ServerConfig:
    """Apply options to a server; without ``--pins``, a lock file at the default place is used."""
    from bridge.cli.targets.servers import default_lock, with_timeout  # noqa: PLC0415 - after usage errors
    from bridge.client.pins import ServerPins, load_pins  # noqa: PLC0415 - likewise

    server = with_timeout(server, settings.timeout_seconds)
    if settings.prefix is not None:
        server = replace(server, prefixing=settings.prefix)
    if settings.pins is not None:
        return replace(server, pins=load_pins(settings.pins).get(server.name, ServerPins.nothing()))
    if server.lock is None and (lock := default_lock(target)).is_file():
        return replace(server, pins=load_pins(lock).get(server.name))
    return server


def _shown(target: Target) -> str:
    """A target without secrets; its path is relative to the working directory, if it is in it."""
    from bridge.redaction import redact_command, redact_url  # noqa: PLC0415 - after usage errors

    match target:
        case CommandTarget():
            return redact_command(target.command).shown
        case UrlTarget() | OpenApiTarget(path=None):
            return redact_url(target_argument(target)).shown
        case _:
            here, text = str(Path.cwd()), target_argument(target)
            return "." if text == here else text.removeprefix(here.rstrip(os.sep) + os.sep)
