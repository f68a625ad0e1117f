"""Helpers for options with environment variables, and options that several commands share."""

from __future__ import annotations

import math
import os
import re
import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource

from bridge.cli.help import HeadedOption
from bridge.cli.targets.target import UrlTarget, command_target, only_target, split_targets
from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from bridge.cli.interaction.questions import QuestionAnswerer
    from bridge.cli.targets.target import Target
    from bridge.client.config.servers import Prefixing
    from bridge.client.pins import PinMode
    from bridge.models.provider import ProviderChatModel

Group = TypeVar("Group")
_GROUP, _HEADING = "group", "heading"
_AnyTarget = TypeVar("_AnyTarget", bound="Target")

header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="HTTP header of every request to a URL. In single quotes, --header 'Authorization: Bearer ${KEY}' reads the "
    "key from the variable KEY. Repeatable.",
)
"""``--header``, with parameter ``headers``."""


class CommaSeparated(click.ParamType[tuple[str, ...]]):
    """Comma-separated texts, on the command line and in the environment."""

    name = "text[,text…]"
    envvar_list_splitter: ClassVar[str | None] = ","

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Split at commas."""
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def option(name: str, **settings: Any) -> Callable[[Any], Any]:
    """Option that can also be set in the environment: ``--max-sessions`` is ``BRIDGE_MAX_SESSIONS``.

    The settings are those of `click.option`, and the ``heading`` of its group; a default is shown in the help.
    """
    variable = "BRIDGE_" + name.removeprefix("--").replace("-", "_").upper()
    return click.option(
        name, cls=HeadedOption, envvar=variable, show_envvar=True, show_default="default" in settings, **settings
    )


def setting(*, repr: bool = True, **settings: Any) -> Any:  # noqa: A002 - dataclasses' name
    """Field of a group, set by the option of its name; the settings are those of `option`."""
    return field(repr=repr, metadata=settings)


def count_setting(unit: str, help_text: str, *, least: int = 1, **settings: Any) -> Any:
    """`setting` of a whole number of a unit, such as ``CALLS``."""
    return setting(type=WholeNumber(least), metavar=unit, help=help_text, **settings)


def texts_setting(**settings: Any) -> Any:
    """`setting` of comma-separated texts, whose option is repeatable."""
    return setting(type=CommaSeparated(), multiple=True, callback=lambda *values: sum(values[-1], ()), **settings)


def group_setting(group: type[Any], heading: str | None = None) -> Any:
    """Field with a further group, and its heading in the help."""
    return field(metadata={_GROUP: group, _HEADING: heading})


def option_group(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine options to one decorator, in the order of the help."""

    def add(function: Any) -> Any:
        for each in reversed(options):
            function = each(function)
        return function

    return add


def options_of(
    group: type[Any], names: Container[str] | None = None, heading: str | None = None
) -> Callable[[Any], Any]:
    """Options of the settings of a group, in their order: ``max_calls`` is set by ``--max-calls``.

    Args:
        group: The group.
        names: The settings, also of further groups; None for all.
        heading: The heading of settings that have none.
    """
    return option_group(
        *(
            options_of(each.metadata[_GROUP], names, each.metadata[_HEADING])
            if _GROUP in each.metadata
            else option(f"--{each.name.replace('_', '-')}", **{_HEADING: heading, **each.metadata})
            for each in fields(group)
            if each.metadata and (_GROUP in each.metadata or names is None or each.name in names)
        )
    )


def group_values(group: type[Group], settings: dict[str, Any]) -> Group:
    """Build a group of options, and remove its values from the settings by parameter name.

    Settings that are no options of the command have their defaults.
    """
    values = {
        each.name: group_values(each.metadata[_GROUP], settings)
        if _GROUP in each.metadata
        else settings.pop(each.name, _default_of(each.metadata))
        for each in fields(group)  # type: ignore[arg-type]  # there is no public name for a dataclass
    }
    return group(**values)


def _default_of(metadata: Mapping[str, Any]) -> Any:
    return metadata.get("default", False if "is_flag" in metadata else () if "multiple" in metadata else None)


def typed_options(ctx: click.Context) -> list[click.Option]:
    """Options given on the command line, in the order of the help."""
    return [
        each
        for each in ctx.command.params
        if isinstance(each, click.Option) and ctx.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE
    ]


@contextmanager
def usage_errors(ctx: click.Context, kind: type[Exception], option_name: str | None = None) -> Iterator[None]:
    """Report exceptions of a type as wrong usage, of an option if it is named."""
    try:
        yield
    except kind as error:
        message = str(error) if option_name is None else f"{option_name}: {error}"
        raise click.UsageError(message, ctx) from error


def chat_model_of(ctx: click.Context, name: str, base_url: str | None) -> ProviderChatModel:
    """Build the chat model of ``--model``.

    Raises:
        click.UsageError: The name has another form.
        MissingExtraError: The provider's package is not installed.
        ChatModelError: There are no credentials for the model.
    """
    from bridge.models.provider import chat_model_named  # noqa: PLC0415 - only with a model

    try:
        return chat_model_named(name, base_url=base_url)
    except DefinitionError as error:
        raise click.UsageError(f"--model: {error}", ctx) from error


def optional_model(ctx: click.Context, name: str | None, base_url: str | None) -> ProviderChatModel | None:
    """Build a chat model as `chat_model_of`; None without a name, which a typed base URL needs."""
    if name is not None:
        return chat_model_of(ctx, name, base_url)
    if any(each.name == "base_url" for each in typed_options(ctx)):
        raise click.UsageError("--base-url needs --model, whose API is there", ctx)
    return None


def with_headers(
    ctx: click.Context, targets: Sequence[_AnyTarget], texts: Sequence[str]
) -> list[_AnyTarget | UrlTarget]:
    """Add HTTP headers to the one URL target; errors never contain their values."""
    if not texts:
        return list(targets)
    urls = sum(isinstance(target, UrlTarget) for target in targets)
    if urls != 1:
        why = "there is none" if not urls else f"there are {urls}, and a header may be a secret of one of them"
        message = f"--header needs one http(s):// URL, and {why}; for several, use 'headers' in an mcp.json"
        raise click.UsageError(message, ctx)
    headers = tuple(_header(ctx, text) for text in texts)
    if len({name.lower() for name, _ in headers}) < len(headers):
        raise click.UsageError("--header sets one header twice; leave one out", ctx)
    return [replace(target, headers=headers) if isinstance(target, UrlTarget) else target for target in targets]


def _header(ctx: click.Context, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (colon and name.strip()):
        raise click.UsageError("--header must have the form 'NAME: VALUE', such as 'Authorization: Bearer ${KEY}'", ctx)
    return name.strip(), value.strip()


class WholeNumber(click.IntRange):
    """Integer in a range."""

    name = "integer"


class Number(click.FloatRange):
    """Number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert the number; NaN is rejected."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return number


class Pattern(click.ParamType[re.Pattern[str]]):
    """Regular expression; in the environment, each line is one."""

    name = "regular expression"
    envvar_list_splitter: ClassVar[str | None] = "\n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        """Compile the expression."""
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression: {error}.", param, ctx)


def chosen_target(ctx: click.Context, text: str | None, options: ServerOptions) -> Target:
    """The one target of a short command, with its headers.

    Raises:
        click.UsageError: There is none, or it does not take the options.
        TargetError: It has no tools.
    """
    [target] = with_headers(ctx, [only_target(ctx, text)], options.headers)
    check_pins(ctx, [target])
    return target


def missing_name(ctx: click.Context, what: str, target: str | None) -> click.UsageError:
    """Error for a missing word of a short command, such as ``the name of a TOOL``, that a target lists."""
    shown = "" if target is None else f"; bridge list {shlex.quote(target)} shows them"
    return click.UsageError(f"{what} is missing{shown}", ctx)


def split_words(ctx: click.Context, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split arguments into the target, unless that is a command after ``--``, and the rest."""
    rest = list(words)
    target = None if command_target(ctx) or not rest else rest.pop(0)
    return target, [utf8_word(ctx, each) for each in rest]


def utf8_word(ctx: click.Context, word: str) -> str:
    """Read a word of the command line as UTF-8; Python reads it by the locale, and escapes what that does not have."""
    try:
        return os.fsencode(word).decode()
    except UnicodeError:
        raise click.UsageError(f"{word!r} is not text in UTF-8", ctx) from None


def check_pins(ctx: click.Context, targets: Sequence[Target]) -> None:
    """Refuse a lock file on the command line without a server; the environment may be for other commands."""
    if not split_targets(targets)[1] and any(each.name == "pins" for each in typed_options(ctx)):
        raise click.UsageError("--pins needs a server; the tools of a Python target cannot be pinned", ctx)


_PREFIX: dict[str, Any] = {
    "type": click.Choice(["always", "on_collision", "never"]),
    "help": "When to prefix tool names with their server's name: always, only on a name collision, or never. The "
    "default is the configuration's, else always with several servers.",
}

prefix_option = option("--prefix", **_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamOptions:
    """Options of servers whose tools are used."""

    pins: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        help="Lock file of bridge pin; tools, resources and prompts that differ from it are not used.",
    )
    pin_mode: PinMode = setting(
        type=click.Choice(["refuse", "flag"]),
        default="refuse",
        help="Leave out what differs from its pin, or use it with a warning.",
    )
    prefix: Prefixing | None = setting(**_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """Options of a short command for the questions that tools ask."""

    root: tuple[Path, ...] = setting(
        type=click.Path(exists=True, path_type=Path),
        multiple=True,
        metavar="FOLDER",
        help="A folder for tools that ask for your folders. Repeatable.",
    )
    model: str | None = setting(
        metavar="PROVIDER:NAME",
        help="Chat model for tools that ask for a completion: openai:NAME, anthropic:NAME or bedrock:NAME.",
    )
    base_url: str | None = setting(metavar="URL", help="Base URL of another server with the provider's API.")
    no_questions: bool = setting(
        is_flag=True, help="Declare to servers that questions are not answered, so that their tools do without."
    )

    def answerer(self, ctx: click.Context) -> QuestionAnswerer | None:
        """Build what answers the questions; None with ``--no-questions``. Raises as `chat_model_of` does."""
        if self.no_questions:
            return None
        from bridge.cli.interaction.questions import QuestionAnswerer  # noqa: PLC0415 - after errors of the arguments

        return QuestionAnswerer(model=optional_model(ctx, self.model, self.base_url), roots=self.root or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a short command for the servers of its target."""

    timeout: float | None
    headers: tuple[str, ...]
    upstream: UpstreamOptions = group_setting(UpstreamOptions)
    questions: QuestionOptions = group_setting(QuestionOptions)


def timeout_option(help_text: str, **settings: Any) -> Callable[[Any], Any]:
    """Create the ``--timeout`` option of a command, in seconds."""
    return click.option("--timeout", type=Number(0, min_open=True), help=help_text, **settings)


def registry_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the ``--registry`` option to a command."""
    return click.option(
        "--registry",
        metavar="URL",
        envvar="BRIDGE_REGISTRY",
        show_envvar=True,
        required=True,
        help="Address of the registry, before /v0.1.",
    )(command)


def server_options(timeout_help: str, *, asks: bool = False) -> Callable[[Any], Any]:
    """Options of `ServerOptions`; with ``asks``, those for questions, too."""
    groups = [UpstreamOptions, QuestionOptions] if asks else [UpstreamOptions]
    return option_group(timeout_option(timeout_help), header_option, *map(options_of, groups))


def output_option(help_text: str) -> Callable[[Any], Any]:
    """Create the ``--output`` option of a command, ``text`` or ``json``."""
    return click.option(
        "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help=help_text
    )
