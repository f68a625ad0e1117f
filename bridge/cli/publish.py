"""``bridge publish``: write the ``server.json`` of a project."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import click

from bridge.cli.reporting import CommandError, logging_option
from bridge.cli.terminal import write_json
from bridge.errors import WireError
from bridge.hosting.process import print_message
from bridge.private_files import write_readable


@click.command(short_help="Write the server.json of a project for a registry.")
@click.argument("name")
@click.option(
    "--project", type=click.Path(dir_okay=False, path_type=Path), default=Path("pyproject.toml"), help="The project."
)
@click.option("--url", help="URL of the server, if it runs somewhere; by default its package is described.")
@click.option("--argument", "arguments", multiple=True, help="Argument of the package's command. Repeatable.")
@click.option("--secret", "secrets", multiple=True, help="Environment variable with a secret. Repeatable.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="The file; by default it is shown.")
@logging_option("warning")
def command(
    name: str,
    project: Path,
    url: str | None,
    arguments: tuple[str, ...],
    secrets: tuple[str, ...],
    output: Path | None,
) -> None:
    """Write the server.json (2025-12-11) of the project for the server NAME, such as io.github.ada/weather.

    Version, description and repository are those of pyproject.toml, and the package is that of its name. Send the file
    to a registry with the registry's own publisher, which proves that the name is yours.
    """
    from bridge.client.config.server_json import server_json_of  # noqa: PLC0415 - after usage errors

    try:
        described = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        document = server_json_of(name, described, url=url, arguments=arguments, secrets=secrets)
    except OSError as error:
        raise CommandError(f"cannot read {project}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError) as error:
        raise CommandError(f"{project} is not a pyproject.toml with a section [project]") from error
    except WireError as error:
        raise CommandError(f"{project}: {error}") from error
    if output is None:
        write_json(document)
        return
    try:
        write_readable(output, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror or error}") from error
    print_message(f"wrote {output}")
