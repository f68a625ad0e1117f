"""Targets: sources of tools on the command line.

    file.py[:object]           a Python file, imported under its stem with its directory on ``sys.path``
    directory/, .              all Python files in a directory, except tests and those that begin with an underscore,
                               and the skills in it: folders with SKILL.md
    package.module[:object]    a module, also found in the working directory
    mcp.json[#server]          the servers of a configuration, or one of them (`bridge.client.config`); also of the
                               config.toml of Codex, and the config.yaml of Goose and Continue
    server.mcpb                the server of an MCP Bundle, which is unpacked
    openapi.json, openapi.yaml the operations of an OpenAPI document that --operations names; also by its URL
    http(s)://…                an MCP server, or a host, a catalogue or a card that says where it is
    -- command args…           an MCP server over stdio

An object may be a FastAPI application, whose operations are chosen like those of a document.

Without ``:object``, the tools of a module are those of its only ToolBox at module level, or else its decorated
functions (see `bridge.tools.function.tools_from`).
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, fields, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from bridge.cli.targets.openapi import OpenApiOptions, given_openapi, is_openapi_file, is_openapi_url
from bridge.errors import TargetError
from bridge.text import nearest
from bridge.wire.cards import may_be_discovered

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = (
    "file.py[:object], directory/, package.module[:object], mcp.json[#server], server.mcpb, openapi.json, "
    "an http(s):// URL, or -- command args…"
)
"""Forms of a target, for messages."""

_LOCAL = re.compile(r"(?P<source>.+?)(?::(?P<attribute>[^\W\d]\w*(?:\.[^\W\d]\w*)*))?", re.DOTALL)
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_CONFIGURATION = re.compile(r"(?P<file>.+\.(?i:jsonc?|mcpb|toml|ya?ml))(?:#(?P<server>.*))?", re.DOTALL)
_WITHOUT_SCHEME = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):\d+(?:/|$)")
_COMMAND_KEY = "bridge.cli.command"
_NO_OPENAPI = OpenApiOptions()


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A Python file, or a directory of them."""

    path: Path
    """Absolute path of the file or directory."""
    attribute: str | None = None
    """Dotted name of an object in it; None for all tools of the module."""
    openapi: OpenApiOptions = _NO_OPENAPI
    """Operations, if the object is a FastAPI application."""

    @property
    def name(self) -> str:
        """Default server name."""
        path = self.path.resolve() if self.path.name == ".." else self.path
        return path.stem or "tools"


@dataclass(frozen=True, slots=True)
class ModuleTarget:
    """A module that can be imported."""

    module: str
    """Dotted name of the module."""
    attribute: str | None = None
    """Dotted name of an object in it; None for all tools of the module."""
    openapi: OpenApiOptions = _NO_OPENAPI
    """Operations, if the object is a FastAPI application."""

    @property
    def name(self) -> str:
        """Default server name."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class OpenApiTarget:
    """Operations of an OpenAPI document."""

    source: str
    """Absolute path, or URL, of the document."""
    openapi: OpenApiOptions = _NO_OPENAPI
    """The chosen operations."""

    @property
    def name(self) -> str:
        """Default server name."""
        path = self.path
        return path.stem if path else urlsplit(self.source).hostname or "api"

    @property
    def path(self) -> Path | None:
        """The file; None for a URL."""
        return None if self.source.startswith(("http://", "https://")) else Path(self.source)


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """MCP server with a URL."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """HTTP headers by name; references are not expanded yet."""

    @property
    def name(self) -> str:
        """Default server name."""
        return urlsplit(self.url).hostname or "server"


def with_profile(target: Target, profile: str | None) -> tuple[Target, str | None]:
    """Return a target, and the profile to select of it: of the URL of a gateway the URL of the profile, and None.

    Raises:
        TargetError: The target cannot have profiles.
    """
    if profile is None or isinstance(target, ConfigTarget):
        return target, profile
    if not isinstance(target, UrlTarget):
        raise TargetError("--profile needs a configuration with profiles, or the URL of a gateway")
    parts = urlsplit(target.url)
    return replace(target, url=parts._replace(path=f"{parts.path.rstrip('/')}/{profile}").geturl()), None


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """MCP server started by a command."""

    command: tuple[str, ...]
    """The command and its arguments."""

    @property
    def name(self) -> str:
        """Default server name."""
        return Path(self.command[0]).stem


@dataclass(frozen=True, slots=True)
class ConfigTarget:
    """A configuration of MCP servers, or an MCP Bundle with one."""

    path: Path
    """The file, absolute."""
    server: str | None = None
    """Name of the selected server; None for all."""

    @property
    def name(self) -> str:
        """Default server name."""
        return self.server or self.path.stem.strip(".") or "servers"

    @property
    def is_bundle(self) -> bool:
        """True for an MCP Bundle."""
        return self.path.suffix.lower() == ".mcpb"

    @property
    def is_editable(self) -> bool:
        """True if entries in the format of ``mcp.json`` can be written to it."""
        return self.path.suffix.lower() in {".json", ".jsonc"}


LocalTarget = FileTarget | ModuleTarget | OpenApiTarget
"""Tools that run in this process."""
RemoteTarget = UrlTarget | CommandTarget | ConfigTarget
"""Tools that run in another process."""
Target = LocalTarget | RemoteTarget


def parse_target(text: str) -> Target:
    """Parse one target.

    Raises:
        TargetError: The text is not a target, or a file does not exist.
    """
    if text.startswith(("http://", "https://")):
        url = _url_target(text)
        return OpenApiTarget(text) if is_openapi_url(text) and not may_be_discovered(text) else url
    if text.lower().endswith((".json", ".yaml", ".yml")) and is_openapi_file(path := _existing_file(text)):
        return OpenApiTarget(str(path))
    if configuration := _CONFIGURATION.fullmatch(text):
        if configuration["server"] == "":
            raise TargetError(f"the name of a server is missing after {text!r}")
        return ConfigTarget(_existing_file(configuration["file"]), configuration["server"])
    if _WITHOUT_SCHEME.match(text) and not Path(text).exists():
        raise TargetError(f"there is no file {text!r}; if it is a URL, write 'http://{text}'")
    match = _LOCAL.fullmatch(text)
    source, attribute = (match["source"], match["attribute"]) if match else (text, None)
    if source.endswith(".py") or source in {".", ".."} or "/" in source or "\\" in source:
        return FileTarget(_existing_file(source, directory=attribute is None), attribute)
    if attribute is None and _is_folder(source):
        return FileTarget(Path(source).absolute())
    if _MODULE.fullmatch(source):
        return ModuleTarget(source, attribute)
    raise TargetError(f"{text!r} is not a target; name {KINDS}")


def _url_target(text: str) -> UrlTarget:
    try:
        host = urlsplit(text).hostname
    except ValueError:
        host = None
    if not host:
        raise TargetError(f"{text!r} is not the URL of a server: it has no host")
    return UrlTarget(text)


def _existing_file(text: str, *, directory: bool = False) -> Path:
    path = Path(text).expanduser().absolute()
    if path.is_dir() and not directory:
        raise TargetError(f"{text!r} is a directory; name a file in it")
    if not path.exists():
        raise TargetError(f"there is no file {text!r} (looked for {path}){similar_file(text)}")
    return path


def similar_file(text: str) -> str:
    """Suggest the file with the most similar name in the same folder; empty if there is none."""
    path = Path(text).expanduser()
    if not path.parent.is_dir() or not os.access(path.parent, os.R_OK):
        return ""
    near = nearest(path.name, (each.name for each in path.parent.iterdir()))
    return f"; did you mean {str(path.with_name(near[0]))!r}?" if near else ""


def _is_folder(text: str) -> bool:
    """True for a directory that is not a package, and that no module precedes."""
    if not (text and Path(text).is_dir()):
        return False
    spec = PathFinder.find_spec(text.partition(".")[0], [str(Path.cwd()), *sys.path])
    return spec is None or not spec.has_location


def target_argument(target: LocalTarget | UrlTarget | ConfigTarget) -> str:
    """Write a target as an argument, with absolute paths."""
    if isinstance(target, UrlTarget):
        return target.url
    if isinstance(target, OpenApiTarget):
        return target.source
    if isinstance(target, ConfigTarget):
        return str(target.path) if target.server is None else f"{target.path}#{target.server}"
    source = str(target.path) if isinstance(target, FileTarget) else target.module
    return source if target.attribute is None else f"{source}:{target.attribute}"


def existing_targets(texts: Sequence[str]) -> list[Target]:
    """Parse the file targets that exist."""
    return [parse_target(text) for text in texts if Path(text.partition("#")[0]).expanduser().exists()]


def split_targets(targets: Sequence[Target]) -> tuple[list[LocalTarget], list[RemoteTarget]]:
    """Split targets into those that run in this process and remote ones."""
    local = [target for target in targets if isinstance(target, LocalTarget)]
    remote = [target for target in targets if not isinstance(target, LocalTarget)]
    return local, remote


class TargetCommand(click.Command):
    """Command with targets, of which one may be a command line after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the command line after ``--``, which has its own options."""
        if "--" in args and not ctx.resilient_parsing:
            position = args.index("--")
            if position + 1 == len(args):
                raise click.UsageError("a command is missing after --", ctx)
            ctx.meta[_COMMAND_KEY] = CommandTarget(tuple(args[position + 1 :]))
            args = args[:position]
        return super().parse_args(ctx, args)


def command_target(ctx: click.Context) -> CommandTarget | None:
    """The command line after ``--``; None for none."""
    found = ctx.meta.get(_COMMAND_KEY)
    assert found is None or isinstance(found, CommandTarget)
    return found


def given_targets(ctx: click.Context, texts: Sequence[str]) -> list[Target]:
    """All targets of a command: its arguments, and a command line after ``--``.

    Raises:
        TargetError: One has no tools.
    """
    after_dashes = command_target(ctx)
    return _with_openapi(ctx, [*map(parse_target, texts), *([after_dashes] if after_dashes else [])])


def _with_openapi(ctx: click.Context, targets: list[Target]) -> list[Target]:
    """Add the options for OpenAPI to the document, or else to the Python objects, which may be applications."""
    options = given_openapi(ctx)
    documents = [target for target in targets if isinstance(target, OpenApiTarget)]
    if len(documents) > 1:
        message = (
            f"there are {len(documents)} OpenAPI documents, and operations and credentials are of one: for several, "
            "name a Python file that calls bridge.from_openapi for each"
        )
        raise click.UsageError(message, ctx)
    objects = [target for target in targets if isinstance(target, FileTarget | ModuleTarget) and target.attribute]
    takers: list[OpenApiTarget | FileTarget | ModuleTarget] = [*documents] or [*objects]
    if not options:
        return targets
    if not takers:
        if any(ctx.get_parameter_source(each.name) is ParameterSource.COMMANDLINE for each in fields(options)):
            message = "--operations and --openapi-… need an OpenAPI document, or a FastAPI application: app.py:object"
            raise click.UsageError(message, ctx)
        return targets
    if options.is_for_one and len(takers) > 1:
        raise click.UsageError("--openapi-… needs one FastAPI application, and there are several objects", ctx)
    return [
        replace(target, openapi=options) if isinstance(target, LocalTarget) and target in takers else target
        for target in targets
    ]


def only_target(ctx: click.Context, text: str | None) -> Target:
    """The one target of a command: an argument, or a command line after ``--``.

    Raises:
        click.UsageError: There is none, or both.
        TargetError: It has no tools.
    """
    after_dashes = command_target(ctx)
    if text is not None and after_dashes is not None:
        raise click.UsageError(f"there are two targets: {text!r}, and the command after --", ctx)
    if text is None and after_dashes is None:
        raise click.UsageError("a TARGET is missing, such as tools.py", ctx)
    return after_dashes or _with_openapi(ctx, [parse_target(str(text))])[0]


def only_remote_target(ctx: click.Context, text: str | None, purpose: str) -> RemoteTarget:
    """`only_target`, whose servers have a purpose such as ``to pin``; also raises UsageError for Python."""
    target = only_target(ctx, text)
    if isinstance(target, LocalTarget):
        kind = "an OpenAPI document" if isinstance(target, OpenApiTarget) else "a Python target"
        raise click.UsageError(f"{kind} has no server {purpose}", ctx)
    return target
