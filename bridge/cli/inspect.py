"""``bridge inspect``: a page in the browser that shows and calls what targets offer."""

from __future__ import annotations

import asyncio
import os
import signal
import webbrowser
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.completion import complete_targets
from bridge.cli.options import (
    ServerOptions,
    WholeNumber,
    check_pins,
    group_values,
    option,
    optional_model,
    server_options,
    with_headers,
)
from bridge.cli.reporting import logging_option
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import (
    CommandTarget,
    ConfigTarget,
    FileTarget,
    LocalTarget,
    ModuleTarget,
    OpenApiTarget,
    TargetCommand,
    UrlTarget,
    given_targets,
    target_argument,
)
from bridge.errors import TargetError
from bridge.hosting.process import print_message, redirect_stdout, run_interruptible
from bridge.private_files import open_private
from bridge.signals import hangup_signals

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator, Sequence

    from bridge.cli.targets.target import Target
    from bridge.client.config.servers import ServerConfig
    from bridge.inspector.access import AccessTokens
    from bridge.inspector.configuration import GivenServer
    from bridge.inspector.inspector import Inspector
    from bridge.inspector.snippets import Origin
    from bridge.types import Json

_MAX_CALL_SECONDS = 3600.0
"""Maximum seconds of a call, in which a person may answer questions."""
_CLOSE_SECONDS = 1
"""Seconds that open requests of the page may take after the end."""


@click.command(cls=TargetCommand, short_help="Show and call the tools of TARGETs in the browser.")
@click.argument("targets", nargs=-1, metavar="[TARGET...]", shell_complete=complete_targets)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    metavar="PORT",
    default=0,
    show_default=True,
    help="Port of the page on 127.0.0.1; 0 for a free one, which is printed.",
)
@option(
    "--model",
    metavar="PROVIDER:NAME",
    help="Model that proposes answers to sampling requests of servers: openai:NAME, anthropic:NAME or bedrock:NAME.",
)
@option("--base-url", metavar="URL", help="Base URL of another server with the API of the model's provider.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@server_options("Timeout of a call without progress; by default 60 seconds, or that of the configuration.")
@openapi_options
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    targets: tuple[str, ...],
    port: int,
    model: str | None,
    base_url: str | None,
    no_browser: bool,
    **settings: Any,
) -> int:
    """Show the tools, resources and prompts of any number of TARGETs in the browser, and call them.

    The page shows forms for arguments, progress, results, questions of tools, and all messages. It is served to this
    machine only, at the printed address. Each Python target is served over stdio by a process of its own.
    """
    options = group_values(ServerOptions, settings)
    given = given_targets(ctx, targets)
    if not given:
        raise click.UsageError("a TARGET is missing, such as tools.py", ctx)
    meant = with_headers(ctx, given, options.headers)
    check_pins(ctx, meant)
    chat_model = optional_model(ctx, model, base_url)
    with redirect_stdout():
        from bridge.hosting import sockets  # noqa: PLC0415 - after usage errors
        from bridge.inspector.access import HOST, AccessTokens  # noqa: PLC0415 - as above
        from bridge.inspector.inspector import Inspector  # noqa: PLC0415 - as above
        from bridge.inspector.questions import SamplingModel  # noqa: PLC0415 - as above

        sampling_model = None if chat_model is None else SamplingModel(str(model), chat_model)
        configuration = _Configuration(meant, options)
        inspector = Inspector(_servers(meant, options), configuration=configuration, model=sampling_model)
        bound = sockets.bind(sockets.resolve(HOST, port), "--port")
        tokens = AccessTokens(lambda token: print_message(f"the address was used; now serving it at {page}{token}"))
        page = sockets.url_of(HOST, bound[0].getsockname()[1], f"{tokens.path}/?token=")
        url = f"{page}{tokens.unused()}"
        with nullcontext() if no_browser else _private_file(url) as file_url:
            run_interruptible(_serve, inspector, bound, tokens, url, file_url)
    return 0


def _servers(targets: Sequence[Target], options: ServerOptions) -> list[GivenServer]:
    """The servers of all targets under unique names, each with the target that it comes from."""
    from bridge.client.config.formats import is_disabled  # noqa: PLC0415 - after usage errors
    from bridge.gateway import merged_servers  # noqa: PLC0415 - as above
    from bridge.inspector.configuration import GivenServer  # noqa: PLC0415 - as above

    groups: list[tuple[str, list[ServerConfig]]] = []
    found: dict[str, GivenServer] = {}
    disabled: dict[str, Json] = {}
    for target in targets:
        configs = _adapted(_configs(target, is_alone=len(targets) == 1), options)
        groups.append((target.name, configs))
        entries = _entries(target)
        for config in merged_servers(groups):
            if config.name not in found:
                own = next(each for each in configs if replace(each, name=config.name) == config)
                found[config.name] = GivenServer(
                    name=config.name,
                    config=config,
                    entry=entries.get(own.name) or entries[target.name],
                    origin=_origin(target, own),
                    saved_name=own.name if isinstance(target, ConfigTarget) and not target.is_bundle else None,
                )
        if isinstance(target, ConfigTarget) and target.server is None and not target.is_bundle:
            disabled |= {name: entry for name, entry in entries.items() if is_disabled(entry)}
    if not found:
        raise TargetError("there are no servers in these targets")
    others = (
        GivenServer(name=name, config=None, entry=entry, saved_name=name)
        for name, entry in disabled.items()
        if name not in found
    )
    return [*found.values(), *others]


def _adapted(configs: Iterable[ServerConfig], options: ServerOptions) -> list[ServerConfig]:
    """Servers with the settings of the command line, and with time for a person to answer questions."""
    from bridge.cli.targets.servers import pinned, with_timeout  # noqa: PLC0415 - after usage errors

    held = pinned(configs, options.upstream)
    patient = (replace(each, max_call_seconds=max(each.max_call_seconds, _MAX_CALL_SECONDS)) for each in held)
    return [with_timeout(config, options.timeout) for config in patient]


def _entries(target: Target) -> dict[str, Any]:
    """Entries of a target's servers, as an ``mcp.json`` has them; values of headers are left to the environment."""
    from bridge.cli.targets.client_entries import client_entry  # noqa: PLC0415 - after usage errors
    from bridge.client.config.loading import load_entries  # noqa: PLC0415 - as above
    from bridge.inspector.snippets import header_variable  # noqa: PLC0415 - as above

    if isinstance(target, ConfigTarget) and not target.is_bundle:
        return load_entries(target.path)
    entry = client_entry(target)
    if isinstance(target, UrlTarget) and target.headers:
        entry["headers"] = {name: f"${{{header_variable(name)}}}" for name, _ in target.headers}
    return {target.name: entry}


class _Configuration:
    """Entries of servers that the page adds and changes, and the file of the only configuration among the targets."""

    def __init__(self, targets: Sequence[Target], options: ServerOptions) -> None:
        paths = {each.path for each in targets if isinstance(each, ConfigTarget) and each.is_editable}
        self._path = next(iter(paths)) if len(paths) == 1 else None
        self._options = options
        self.path = None if self._path is None else str(self._path)

    def read(self, name: str, entry: Json, *, is_saved: bool) -> tuple[ServerConfig, Origin]:
        """Read an entry with the settings of the file and of the command line."""
        from bridge.client.config.loading import parse_entry  # noqa: PLC0415 - after usage errors
        from bridge.client.transports.http import HttpTransport  # noqa: PLC0415 - as above
        from bridge.inspector.snippets import Origin  # noqa: PLC0415 - as above

        (config,) = _adapted([parse_entry(name, entry, self._path)], self._options)
        if is_saved and self._path is not None:
            return config, _origin(ConfigTarget(self._path), config)
        if isinstance(config.transport, HttpTransport):
            return config, Origin(argument=config.transport.redacted(), headers=tuple(config.transport.headers))
        return config, Origin(command=(str(entry.get("command")), *map(str, entry.get("args") or ())))

    def save(self, name: str, entry: Json) -> None:
        """Write an entry to the file."""
        from bridge.cli.install.config_files import only_writer, set_entry  # noqa: PLC0415 - after usage errors

        if self._path is None:
            raise TargetError("the page was not opened with one mcp.json, into which a server could be written")
        with only_writer(self._path):
            set_entry(self._path, None, name, entry)


def _configs(target: Target, *, is_alone: bool) -> list[ServerConfig]:
    """The servers of a target; a Python target is served over stdio."""
    from bridge.cli.targets.client_entries import serving_entry  # noqa: PLC0415 - after usage errors
    from bridge.cli.targets.servers import servers_of  # noqa: PLC0415 - as above
    from bridge.client.config.servers import ServerConfig  # noqa: PLC0415 - as above
    from bridge.client.transports.stdio import StdioTransport  # noqa: PLC0415 - as above

    if not isinstance(target, LocalTarget):
        return servers_of(target, is_alone=is_alone)
    entry = serving_entry([target])
    transport = StdioTransport(entry["command"], args=tuple(entry["args"]), env=entry.get("env", {}), inherit_env="all")
    return [ServerConfig(name=target.name, transport=transport)]


def _origin(target: Target, config: ServerConfig) -> Origin:
    from bridge.inspector.snippets import Origin  # noqa: PLC0415 - after usage errors

    match target:
        case CommandTarget():
            return Origin(command=target.command)
        case ConfigTarget():
            prefix = f"{config.name}_" if config.prefixing == "always" else ""
            name = target.server or config.name
            return Origin(argument=f"{target.path}#{name}", prefix=config.prefix or prefix)
        case UrlTarget():
            return Origin(argument=target.url, headers=tuple(name for name, _ in target.headers))
        case FileTarget() | ModuleTarget() | OpenApiTarget():
            options = tuple(target.openapi.redacted().arguments())
            return Origin(argument=target_argument(target), is_python=True, options=options)


@contextmanager
def _private_file(url: str) -> Iterator[str]:
    """Create a file that leads a browser to an address; yields the file's own address.

    All users of a machine can read command lines, such as that of the browser. Only this user can read the file.
    """
    with TemporaryDirectory(prefix="bridge-inspect-") as folder:
        file = Path(folder) / "open.html"
        with open(open_private(file, os.O_WRONLY), "w") as opened:  # noqa: PTH123 - a descriptor, not a path
            opened.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">\n')
        yield file.as_uri()


async def _serve(
    inspector: Inspector, sockets: list[socket.socket], tokens: AccessTokens, url: str, file_url: str | None
) -> None:
    """Serve the page until SIGTERM, or until it is cancelled; open it by a file, if there is one."""
    import uvicorn  # noqa: PLC0415 - after usage errors

    from bridge.hosting.serve import http_protocol  # noqa: PLC0415 - as above
    from bridge.hosting.server import BackgroundServer  # noqa: PLC0415 - as above
    from bridge.inspector.app import inspector_app  # noqa: PLC0415 - as above

    app, begun, ended = inspector_app(inspector, tokens), asyncio.Event(), asyncio.Event()
    with suppress(NotImplementedError):  # Windows
        for number in (signal.SIGTERM, *hangup_signals()):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
    config = uvicorn.Config(
        app,
        http=http_protocol(),  # ignores upgrades, for which uvicorn would advise to install a library
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=_CLOSE_SECONDS,
    )
    begun.set()
    async with BackgroundServer(config).running(sockets, begun), inspector.running():
        print_message(f"serving the inspector at {url}")
        if file_url is not None:
            webbrowser.open(file_url)
        await ended.wait()
