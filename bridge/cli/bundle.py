"""``bridge bundle``: write an MCP Bundle of Python files."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from bridge.cli.completion import complete_targets
from bridge.cli.reporting import CommandError, logging_option
from bridge.cli.targets.target import FileTarget, parse_target
from bridge.cli.terminal import write_json
from bridge.errors import WireError
from bridge.hosting.process import print_message, redirect_stdout
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.client.config.bundle_writer import Asked
    from bridge.server.features import Features

_PACKAGE = "mcp-toolbridge"
_PROJECT = "pyproject.toml"
_REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SCRIPT = re.compile(r"^# /// script\s*$\n(?P<lines>(?:^#(?: .*)?$\n)+?)^# ///\s*$", re.MULTILINE)
_ASKED = re.compile(r"(?P<variable>[A-Za-z_]\w*)(?::(?P<type>\w+))?(?:=(?P<description>.+))?", re.DOTALL)


@click.command(short_help="Write an MCP Bundle of Python files.")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...", shell_complete=complete_targets)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="The bundle; by default NAME.mcpb.")
@click.option("--name", help="Name of the bundle; by default that of pyproject.toml, or of the file.")
@click.option(
    "--project",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The pyproject.toml with version, description, author and dependencies; by default the one beside the file.",
)
@click.option(
    "--requires", "requirements", multiple=True, help="Package that the files need: 'httpx>=0.28'. Repeatable."
)
@click.option(
    "--include", type=click.Path(path_type=Path), multiple=True, help="Further file or directory. Repeatable."
)
@click.option(
    "--ask",
    multiple=True,
    metavar="VARIABLE[:TYPE][=DESCRIPTION]",
    help="Environment variable that users are asked for: string, number, boolean, directory or file. Repeatable.",
)
@click.option(
    "--secret", multiple=True, metavar="VARIABLE[=DESCRIPTION]", help="Like --ask, for a key or password. Repeatable."
)
@click.option("--dry-run", is_flag=True, help="Show the manifest, and write nothing.")
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    output: Path | None,
    name: str | None,
    project: Path | None,
    requirements: tuple[str, ...],
    include: tuple[Path, ...],
    ask: tuple[str, ...],
    secret: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Write an MCP Bundle (.mcpb) of Python files or directories, which assistants install by a click.

    The bundle has the files, the modules beside them that they import, and a manifest (0.4) of the type uv: the
    assistant runs uv, which installs Python and the packages. The files are imported to list their tools.
    """
    from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - after usage errors
    from bridge.cli.targets.sources import source_files  # noqa: PLC0415 - likewise
    from bridge.client.config.bundle_writer import manifest_of, project_file, write_bundle  # noqa: PLC0415 - likewise

    given = [_file_target(ctx, text) for text in targets]
    asked = [*(_asked(ctx, "--ask", text) for text in ask), *(_asked(ctx, "--secret", text) for text in secret)]
    root, files = source_files(given, include)
    with redirect_stdout():
        features = load_features(given)
    described = _described(project or root / _PROJECT, is_required=project is not None)
    described = {"name": given[0].name, **described, **({"name": name} if name else {})}
    scripts = [_script_settings(each) for each in files if each.suffix == ".py"]
    found = [*(described.get("dependencies") or ()), *requirements]
    found += [each for settings in scripts for each in settings.get("dependencies") or ()]
    try:
        manifest = manifest_of(
            described,
            [_in_bundle(each, root) for each in given],
            [(each.name, each.specification.description or "") for each in features.tools],
            has_prompts=bool(features.prompts),
            asked=asked,
        )
        if dry_run:
            write_json(manifest)
            return
        path = (output or Path(f"{manifest['name']}.mcpb")).absolute()
        contents: dict[str, bytes | Path] = {each.relative_to(root).as_posix(): each for each in files}
        contents[_PROJECT] = project_file(described, _with_own(found, features)).encode()
        length = write_bundle(path, manifest, contents)
    except WireError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"cannot write the bundle: {error.filename or path}: {error.strerror or error}") from error
    print_message(f"wrote {path}: {with_count(len(contents) + 1, 'file')}, {length:,} bytes")


def _file_target(ctx: click.Context, text: str) -> FileTarget:
    target = parse_target(text)
    if not isinstance(target, FileTarget):
        raise click.UsageError(f"a bundle has Python files and directories, and {text!r} is neither", ctx)
    return target


def _asked(ctx: click.Context, option: str, text: str) -> Asked:
    from bridge.client.config.bundle_writer import Asked  # noqa: PLC0415 - after usage errors
    from bridge.client.config.manifest import SettingKind  # noqa: PLC0415 - likewise

    match = _ASKED.fullmatch(text)
    is_secret = option == "--secret"
    if match is None or (is_secret and match["type"]):
        form = "VARIABLE[=DESCRIPTION]" if is_secret else "VARIABLE[:TYPE][=DESCRIPTION]"
        raise click.UsageError(f"{option} has the form {form}, not {text!r}", ctx)
    kind: Any = match["type"] or "string"
    if kind not in (kinds := get_args(SettingKind)):
        raise click.UsageError(f"{option}: {kind!r} is not one of the choices {', '.join(kinds)}", ctx)
    return Asked(variable=match["variable"], type=kind, description=match["description"] or "", is_secret=is_secret)


def _in_bundle(target: FileTarget, root: Path) -> str:
    path = target.path.relative_to(root).as_posix()
    return path if target.attribute is None else f"{path}:{target.attribute}"


def _described(path: Path, *, is_required: bool) -> dict[str, Any]:
    """Read the section ``[project]``; empty if there is no file and none was named."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("project") or {}
    except FileNotFoundError as error:
        if is_required:
            raise CommandError(f"cannot read {path}: {error.strerror}") from error
        return {}
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not TOML: {error}") from error
    return dict(found)


def _script_settings(path: Path) -> Mapping[str, Any]:
    """Return the settings that a Python file has as inline script metadata (PEP 723); empty for none."""
    if (match := _SCRIPT.search(path.read_text(encoding="utf-8", errors="replace"))) is None:
        return {}
    lines = [line[2:] for line in match["lines"].splitlines()]
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{path}: its inline script metadata is not TOML: {error}") from error


def _with_own(requirements: Sequence[str], features: Features) -> list[str]:
    """Return requirements, each once, with this package in the version in use."""
    found = list(dict.fromkeys(requirements))
    names = {match[0].lower() for each in found if (match := _REQUIREMENT_NAME.match(each))}
    if {_PACKAGE, _PACKAGE.replace("-", "_")} & names:
        return found
    extra = "[skills]" if features.skills else ""
    return [f"{_PACKAGE}{extra}=={version(_PACKAGE)}", *found]
