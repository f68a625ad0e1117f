"""Shell completion: installation, and completion of targets, names and arguments (click, "Shell Completion").

Python targets are imported to complete the names of what they offer, as `bridge call` would do. Servers are not
started.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from bridge.cli.targets.target import LocalTarget, parse_target
from bridge.errors import BridgeError, ConfigError, MissingExtraError
from bridge.hosting.process import print_message, run_interruptible
from bridge.private_files import make_folder, naming, write_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bridge.server.features import Features

PROGRAMS = ("bridge", "mcp-toolbridge")
"""Names of the command."""
VARIABLE = "_BRIDGE_COMPLETE"
"""Variable by which a shell asks for completions."""
SHELLS = ("bash", "zsh", "fish")

_SAFE = re.compile(r"[\w./@][\w.@:/#=+,%-]*")
"""Words that no shell changes or runs, and that are no option. bash inserts a completion without quoting it."""
_MAX_CONFIG_CHARS = 1_000_000

_BASH = """\
%(complete_func)s() {
    local response type value
    response=$(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_TEXT="$2" %(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                [[ $value == *= ]] && compopt -o nospace
                ;;
        esac
    done <<< "$response"
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Bash(BashComplete):
    """Completion for bash, which splits words at ``=`` and ``:``, too, and replaces the last part only."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Words of the line up to the cursor, and the last one; a letter is added in order to end it at the cursor."""
        *words, last = split_arg_string(os.environ["COMP_LINE"] + "x")
        return words[1:], last[:-1]

    def complete(self) -> str:
        """Completions of the part of the last word that bash replaces; none of a word with escaped characters."""
        words, incomplete = self.get_completion_args()
        replaced = os.environ["COMP_TEXT"]
        items = self.get_completions(words, incomplete)
        if not incomplete.endswith(replaced):
            items = [item for item in items if item.type != "plain"]
        kept = incomplete.removesuffix(replaced)
        return "\n".join(f"{item.type},{item.value.removeprefix(kept)}" for item in items)


add_completion_class(_Bash)


def _installed(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    if shell == "auto":
        shell = Path(os.environ.get("SHELL", "")).name
        if shell not in SHELLS:
            raise click.UsageError(f"name the shell: --install-completion {'|'.join(SHELLS)}", ctx)
    for program in PROGRAMS:
        path = _script_path(shell, program)
        make_folder(path.parent)
        with naming(path):
            write_readable(path, _script(ctx.find_root().command, shell, program).encode())
        print_message(f"wrote {path}")
    print_message(_HINTS[shell])
    ctx.exit()


_HINTS: Mapping[str, str] = {
    "bash": "open a new shell; it needs the package bash-completion",
    "zsh": "put into ~/.zshrc, before compinit: fpath+=(~/.zfunc); then open a new shell",
    "fish": "open a new shell",
}

install_option = click.option(
    "--install-completion",
    type=click.Choice([*SHELLS, "auto"]),
    is_flag=False,
    flag_value="auto",
    is_eager=True,
    expose_value=False,
    callback=_installed,
    metavar="[SHELL]",
    help="Write the completion of commands, options, targets and tools for a shell (bash, zsh or fish), and exit.",
)
"""``--install-completion``, of the command ``bridge`` itself."""


def _script_path(shell: str, program: str) -> Path:
    """File that the shell reads when it first completes the program."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    paths = {
        "bash": data / "bash-completion" / "completions" / program,
        "zsh": Path.home() / ".zfunc" / f"_{program}",
        "fish": config / "fish" / "completions" / f"{program}.fish",
    }
    return paths[shell]


def _script(command: click.Command, shell: str, program: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(command, {}, program, VARIABLE).source()


def complete_targets(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete files, and after ``mcp.json#`` the names of its servers."""
    file, hash_mark, _ = incomplete.partition("#")
    if not hash_mark:
        return [CompletionItem(incomplete, type="file")]
    from bridge.client.config.document import Diagnostics  # noqa: PLC0415 - only for configurations
    from bridge.client.config.formats import read_root  # noqa: PLC0415 - likewise
    from bridge.client.config.hosts import read_document  # noqa: PLC0415 - likewise

    path = Path(file)
    try:
        if not path.is_file():  # a device or a pipe may never end
            return []
        with path.open(encoding="utf-8-sig") as opened:
            text = opened.read(_MAX_CONFIG_CHARS)
        servers = read_root(read_document(text, file), Diagnostics()).servers
    except (OSError, ValueError, ConfigError, MissingExtraError):
        return []
    return _items((f"{file}#{name}" for name in servers), incomplete)


def complete_first_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a target, and nothing after it."""
    return [] if ctx.params.get(str(param.name)) else complete_targets(ctx, param, incomplete)


def complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a target, then the name of a tool, then names and enumerated values of its arguments."""
    words = [*(ctx.params.get(str(param.name)) or ())]
    if not words:
        return complete_targets(ctx, param, incomplete)
    tools = {tool.name: tool.specification for tool in _features_of(words[0]).tools}
    if len(words) == 1:
        return _items(tools, incomplete)
    if words[1] not in tools:
        return []
    properties = tools[words[1]].parameters.get("properties", {})
    return _arguments(words[2:], incomplete, properties, lambda name, _: properties.get(name, {}).get("enum", ()))


def complete_uris(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a target, then the URI of a resource."""
    words = [*(ctx.params.get(str(param.name)) or ())]
    if not words:
        return complete_targets(ctx, param, incomplete)
    resources = _features_of(words[0]).resources
    return _items([each.uri for each in resources.resources] if resources else (), incomplete)


def complete_prompts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a target, then the name of a prompt, then its arguments and, by its completions, their values."""
    words = [*(ctx.params.get(str(param.name)) or ())]
    if not words:
        return complete_targets(ctx, param, incomplete)
    prompts = {prompt.name: prompt for prompt in _features_of(words[0]).prompts or ()}
    if len(words) == 1:
        return _items(prompts, incomplete)
    if (prompt := prompts.get(words[1])) is None:
        return []
    from bridge.tools.context import InvocationContext  # noqa: PLC0415 - only for values

    known = dict(word.split("=", 1) for word in words[2:] if "=" in word)

    def values(name: str, start: str) -> Iterable[str]:
        with _silence(), suppress(Exception):  # the functions of users
            return run_interruptible(prompt.complete, name, start, known, InvocationContext()).values
        return ()

    return _arguments(words[2:], incomplete, [argument.name for argument in prompt.arguments], values)


def _items(values: Iterable[str], incomplete: str) -> list[CompletionItem[Any]]:
    """Completions of a word; those that a shell would change or run are left out, since they may be foreign."""
    return [CompletionItem(value) for value in values if value.startswith(incomplete) and _SAFE.fullmatch(value)]


def _arguments(
    given: Iterable[str], incomplete: str, names: Iterable[str], values: Callable[[str, str], Iterable[object]]
) -> list[CompletionItem[Any]]:
    """Complete ``name=`` of arguments that are not given, or ``name=value``."""
    name, equals, start = incomplete.partition("=")
    if equals:
        return _items((f"{name}={value}" for value in values(name, start)), incomplete)
    known = {word.partition("=")[0] for word in given}
    return _items((f"{each}=" for each in names if each not in known), incomplete)


def _features_of(text: str) -> Features:
    """All that a Python target offers; nothing for other targets, and after any error of its code."""
    from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - only for what targets offer
    from bridge.server.features import Features  # noqa: PLC0415 - likewise

    with _silence(), suppress(BridgeError):
        target = parse_target(text)
        if isinstance(target, LocalTarget):
            return load_features([target])
    return Features()


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what user code prints, which would disturb the line that is completed."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nowhere)
