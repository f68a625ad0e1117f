"""Options for OpenAPI documents and FastAPI applications, and their operations as tools."""

from __future__ import annotations

import os
import re
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.help import HeadedOption
from bridge.errors import DefinitionError, TargetError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from bridge.server.features import Features
    from bridge.tools.toolbox import ToolBox

_KEY = "bridge.cli.openapi"
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_HIDDEN = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApiOptions:
    """Chosen operations of one document or application, its base URL and its credentials."""

    operations: tuple[str, ...] = ()
    """Operations to publish: operationIds, ``METHOD /path`` or ``tag:NAME``; those after ``!`` are left out."""
    openapi_server: str | None = None
    """Base URL of the API; None for that of the document."""
    openapi_auth: tuple[str, ...] = ()
    """``SCHEME=VALUE``, with references to variables."""
    openapi_header: tuple[str, ...] = ()
    """``NAME: VALUE``, with references to variables."""
    openapi_no_output_schemas: bool = False
    """Publish no schemas of responses."""

    def __repr__(self) -> str:
        return f"OpenApiOptions(operations={self.operations!r}, openapi_server={self.openapi_server!r})"

    def arguments(self) -> list[str]:
        """Write them as options of a command."""
        words = [f"--operations={each}" for each in self.operations]
        words += [f"--openapi-server={self.openapi_server}"] if self.openapi_server else []
        words += [f"--openapi-auth={each}" for each in self.openapi_auth]
        words += [f"--openapi-header={each}" for each in self.openapi_header]
        return words + (["--openapi-no-output-schemas"] if self.openapi_no_output_schemas else [])

    def redacted(self) -> OpenApiOptions:
        """Hide secrets that are no references, for display only."""
        return replace(
            self,
            openapi_auth=tuple(_redacted(each, "=") for each in self.openapi_auth),
            openapi_header=tuple(_redacted(each, ":") for each in self.openapi_header),
        )

    @property
    def is_for_one(self) -> bool:
        """True if they belong to one API: a base URL, or credentials."""
        return bool(self.openapi_server or self.openapi_auth or self.openapi_header)

    def __bool__(self) -> bool:
        return bool(self.operations) or self.openapi_no_output_schemas or self.is_for_one


def _redacted(text: str, separator: str) -> str:
    name, _, value = text.partition(separator)
    return text if _REFERENCE.search(value) else f"{name}{separator}{_HIDDEN}"


class _Texts(click.ParamType["tuple[str, ...]"]):
    """Comma-separated texts, in the environment only: paths and secrets may contain commas."""

    name = "text"
    envvar_list_splitter = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Strip a text."""
        return value.strip()


def openapi_options(function: Any) -> Any:
    """Options of `OpenApiOptions`, which `given_openapi` returns; the command does not receive them."""
    settings: dict[str, dict[str, Any]] = {
        "operations": {
            "metavar": "OPERATION",
            "multiple": True,
            "help": "Operations of an OpenAPI document or FastAPI application to publish: an operationId, "
            "'METHOD /path' or tag:NAME, each with * for any text; '!' before it leaves out what it matches. None is "
            "published unless it is named. Repeatable.",
        },
        "openapi_server": {
            "metavar": "URL",
            "help": "Base URL of the API of an OpenAPI document; by default the document's first server.",
        },
        "openapi_auth": {
            "metavar": "'SCHEME=VALUE'",
            "multiple": True,
            "help": "Credential for a security scheme of an OpenAPI document. In single quotes, 'SCHEME=${TOKEN}' "
            "reads it from the variable TOKEN. For HTTP basic: user:password. Repeatable.",
        },
        "openapi_header": {
            "metavar": "'NAME: VALUE'",
            "multiple": True,
            "help": "Further header of every request to the API of an OpenAPI document; ${NAME} reads a variable. "
            "Repeatable.",
        },
        "openapi_no_output_schemas": {
            "is_flag": True,
            "help": "Publish no schemas of the responses of an OpenAPI document, which may be most of its text.",
        },
    }
    for name, each in reversed(settings.items()):
        flag = f"--{name.replace('_', '-')}"
        function = click.option(
            flag,
            name,
            cls=HeadedOption,
            heading="OpenAPI",
            envvar=f"BRIDGE_{name.upper()}",
            show_envvar=True,
            type=None if each.get("is_flag") else _Texts() if each.get("multiple") else str,
            expose_value=False,
            callback=_keep,
            **each,
        )(function)
    return function


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta.setdefault(_KEY, {})[param.name] = value


def given_openapi(ctx: click.Context) -> OpenApiOptions:
    """The options of a command that has `openapi_options`; without it, none."""
    given = ctx.meta.get(_KEY, {})
    return OpenApiOptions(**{each.name: given[each.name] for each in fields(OpenApiOptions) if given.get(each.name)})


def is_openapi_url(url: str) -> bool:
    """True for a URL of a JSON or YAML file, which no MCP server has."""
    return url.partition("#")[0].partition("?")[0].lower().endswith((".json", ".yaml", ".yml"))


_SERVERS_IN_YAML = re.compile(
    rb"^(?:\xef\xbb\xbf)?(?:\{[ \t]*)?([\"']?)(?:extensions|mcpServers)\1[ \t]*:", re.MULTILINE
)
"""Keys of the servers in configurations of Goose and Continue."""


def is_openapi_file(path: Path) -> bool:
    """True for a YAML file without servers, and for a JSON file with the version of OpenAPI or Swagger."""
    is_yaml = path.suffix.lower() in {".yaml", ".yml"}
    try:
        data = path.read_bytes()
    except OSError:
        return is_yaml
    if is_yaml:
        return _SERVERS_IN_YAML.search(data) is None
    from pydantic_core import from_json  # noqa: PLC0415 - only for JSON files

    try:
        value = from_json(data)
    except ValueError:
        return False
    return isinstance(value, dict) and ("openapi" in value or "swagger" in value)


def is_application(value: object) -> bool:
    """True for a FastAPI application."""
    return any(kind.__module__.partition(".")[0] == "fastapi" for kind in type(value).__mro__) and callable(
        getattr(value, "openapi", None)
    )


def operation_tools(source: Any, options: OpenApiOptions) -> ToolBox:
    """Make the chosen operations of a document or an application tools.

    Raises:
        TargetError: The document is invalid, no operation is chosen, or a variable is missing.
        MissingExtraError: The extra ``openapi`` is not installed.
    """
    from bridge.openapi.selection import NoneChosenError  # noqa: PLC0415 - of an extra
    from bridge.openapi.tools import from_openapi  # noqa: PLC0415 - of an extra, and slow to import

    try:
        return from_openapi(
            source,
            options.operations,
            base_url=options.openapi_server,
            credentials=_pairs("--openapi-auth", "=", options.openapi_auth),
            headers=_pairs("--openapi-header", ":", options.openapi_header),
            output_schemas=not options.openapi_no_output_schemas,
        )
    except DefinitionError as error:
        is_chosen = options.operations or not isinstance(error, NoneChosenError)
        hint = "" if is_chosen else "\nChoose them with --operations, such as --operations 'GET /path'."
        raise TargetError(f"{error}{hint}") from error


def _pairs(option: str, separator: str, texts: Sequence[str]) -> dict[str, str]:
    """Split and expand texts; raises `TargetError`, whose message has no values."""
    from bridge.client.config.variables import ExpansionError, Inputs, Variables  # noqa: PLC0415 - imports the client

    variables = Variables(os.environ, Path.cwd(), Inputs((), None, os.environ))
    pairs = {}
    for text in texts:
        name, found, value = text.partition(separator)
        if not found or not name.strip() or not value.strip():
            raise TargetError(f"{option} must have the form NAME{separator}VALUE")
        try:
            pairs[name.strip()] = variables.expand(value.strip()).value
        except ExpansionError as error:
            raise TargetError(f"{option} for {name.strip()!r}: {error}") from None
    return pairs


def lifespan_of(features: Features) -> Callable[[], AbstractAsyncContextManager[None]] | None:
    """Lifespan that keeps connections of operations, and runs applications; None if there are no operations."""
    if "bridge.openapi.executor" not in sys.modules:  # importing it would slow all other targets down
        return None
    from bridge.openapi.executor import OperationExecutor  # noqa: PLC0415 - as above
    from bridge.openapi.tools import running  # noqa: PLC0415 - as above

    if not any(isinstance(tool.executor, OperationExecutor) for tool in features.tools):
        return None

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with running(features.tools):
            yield

    return lifespan
