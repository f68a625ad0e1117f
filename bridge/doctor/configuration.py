"""Rules of targets and servers: configuration, reachability, credentials and pins."""

from __future__ import annotations

import os
import shutil
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.client.transports.http import HttpTransport
from bridge.client.transports.stdio import StdioTransport
from bridge.doctor.rule import Problem, rule
from bridge.errors import ServerAuthError
from bridge.redaction import holds_key, names_secret
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.doctor.subject import Server, Subject

_RUNNERS: Mapping[str, str] = {"npx": "@", "bunx": "@", "pnpx": "@", "uvx": "==", "pipx": "=="}
"""Commands that install a package and run it, and the sign before a version in their arguments."""


@rule("error")
def target_unusable(subject: Subject) -> Iterator[Problem]:
    """A target cannot be read: a Python file raises an exception or has no tools, or a configuration is invalid.

    The message is the one that `bridge serve` would show. Findings about other targets are still reported.
    """
    for target in subject.targets:
        for problem in target.problems:
            yield Problem(item=target.item, message=problem, remedy="resolve this: nothing else in it was checked")


@rule("warning")
def client_without_servers(subject: Subject) -> Iterator[Problem]:
    """With `--client`, the configuration of the client has no servers, or does not exist.

    Only servers under the key that the client reads count.
    """
    for target in subject.targets:
        if target.without_servers is not None:
            message, remedy = target.without_servers
            yield Problem(item=target.item, message=message, remedy=remedy)


@rule("error")
def server_misconfigured(subject: Subject) -> Iterator[Problem]:
    """The entry of a server cannot be used, for example because a variable of a reference is not set.

    The other servers of the configuration are not affected. See [Configuration](../clients/configuration.md).
    """
    for server in subject.servers:
        for problem in server.config.transport.problems:
            yield Problem(
                item=server.item,
                message=problem.message,
                remedy="correct the entry, or set what it needs",
                where=problem.key or "",
            )


@rule("warning")
def configuration_warning(subject: Subject) -> Iterator[Problem]:
    """A configuration contains settings that have no effect or are probably mistakes, such as misspelled keys.

    Bridge logs the same warnings whenever it reads the file.
    """
    for target in subject.targets:
        for warning in target.warnings:
            yield Problem(item=target.item, message=warning, remedy="correct or remove the setting")


@rule("error")
def server_unreachable(subject: Subject) -> Iterator[Problem]:
    """A server cannot be started or reached, or its tools cannot be listed.

    The reason names the phase and the address, without credentials and values of the query; for a command also its
    last lines on standard error. `--timeout` limits the time.
    """
    for server in subject.servers:
        if server.problem is None or isinstance(server.problem, ServerAuthError) or server.config.transport.problems:
            continue
        failure = server.problem.failure
        at = f" at {failure.address}" if failure.address else ""
        yield Problem(
            item=server.item,
            message=f"{failure.phase}{at}: {failure.reason}",
            remedy=failure.hint or "check its address, and that it runs",
            detail="\n".join(failure.last_words),
        )


@rule("warning")
def client_environment(subject: Subject) -> Iterator[Problem]:
    """With `--client`, a server depends on the directory or the `PATH` of your shell, which the client does not have.

    A desktop application is started with a short `PATH`, and starts servers in a directory of its own. `bridge install`
    writes absolute paths.
    """
    for server in subject.servers:
        transport = server.config.transport
        if server.client is None or not isinstance(transport, StdioTransport):
            continue
        if not _is_path(transport.command):
            found = shutil.which(transport.command)
            remedy = f"write {found!r}" if found else "install it, and write its full path"
            where = "on your PATH" if found else "not on your PATH either"
            message = (
                f"the command {transport.command!r} has no path and is {where}; {server.client} may have another PATH"
            )
            yield Problem(item=server.item, message=message, remedy=remedy, where=server.spelled("command"))
        for number, argument in enumerate(transport.args):
            if transport.cwd is None and argument and not os.path.isabs(argument) and Path(argument).exists():  # noqa: PTH117 - of any text
                message = f"{argument!r} is a relative path, and {server.client} starts servers in another directory"
                remedy = f"write {str(Path(argument).absolute())!r}"
                yield Problem(item=server.item, message=message, remedy=remedy, where=server.spelled(f"args[{number}]"))


@rule("error")
def credential_refused(subject: Subject) -> Iterator[Problem]:
    """A server requires a credential that is missing, or refuses the configured one.

    See [Logins and headers](../clients/logins.md).
    """
    for server in subject.servers:
        if isinstance(server.problem, ServerAuthError):
            failure = server.problem.failure
            remedy = failure.hint or "configure its header, or log in with bridge login"
            yield Problem(item=server.item, message=failure.reason, remedy=remedy)


@rule("warning")
def credential_missing(subject: Subject) -> Iterator[Problem]:
    """A server on another host answers without any credential: everybody who can reach it can call its tools.

    Servers on this machine are not reported. Neither are servers with a header whose name suggests a credential, with
    `auth`, or with a stored login. For a public server without private data, accept the finding with `--ignore`.
    """
    for server in subject.servers:
        transport = server.config.transport
        if not isinstance(transport, HttpTransport) or server.problem is not None or _is_loopback(transport.url):
            continue
        if transport.auth is None and not server.has_login and not any(map(names_secret, transport.headers)):
            remedy = "protect the server with keys or logins, and configure the credential here"
            yield Problem(item=server.item, message="answers without a credential", remedy=remedy)


@rule("error")
def plain_http(subject: Subject) -> Iterator[Problem]:
    """The URL of a server on another host begins with `http://`: credentials, arguments and results are not encrypted.

    Anybody on the way can read and change them, including the descriptions that a model reads. Loopback addresses are
    not reported. For a network that encrypts by itself, accept the finding with `--ignore`.
    """
    for server in subject.servers:
        transport = server.config.transport
        if not isinstance(transport, HttpTransport) or _is_loopback(transport.url):
            continue
        if urlsplit(transport.url).scheme == "http":
            message = f"{transport.redacted()} is not encrypted"
            yield Problem(item=server.item, message=message, remedy="use https://", where=server.spelled("url"))


@rule("warning")
def secret_in_configuration(subject: Subject) -> Iterator[Problem]:
    """A configuration contains a secret as text: a header, variable, argument or token that is not a reference.

    Configurations are shared and committed. `${NAME}` reads a variable, `${input:ID}` asks for the value. A value is
    regarded as secret because of the name that it has, or because it looks like a key of a known issuer.
    """
    for server in subject.servers:
        reference = "write a reference such as ${API_KEY}"
        if server.client is not None:  # some have other references
            reference = f"refer to a variable as {server.client} does"
        for where in map(server.spelled, _literal_secrets(server)):
            remedy = f"{reference}, and replace the secret if the file was shared"
            yield Problem(item=server.item, message="the secret is in the file", remedy=remedy, where=where)


@rule("note")
def package_unpinned(subject: Subject) -> Iterator[Problem]:
    """A server is started by a command such as `npx` or `uvx` that installs whatever version of a package is current.

    A new version, or another owner of the package, runs with your permissions and without a review.
    """
    for server in subject.servers:
        transport = server.config.transport
        if not isinstance(transport, StdioTransport):
            continue
        runner = transport.command.replace("\\", "/").rpartition("/")[2].partition(".")[0]
        package = next((each for each in transport.args if not each.startswith("-") and each not in {"run", "dlx"}), "")
        if runner in _RUNNERS and package and not _has_version(package, _RUNNERS[runner]):
            message = f"{runner} runs the newest version of {package!r}"
            yield Problem(
                item=server.item, message=message, remedy=f"name a version: {package}{_RUNNERS[runner]}VERSION"
            )


@rule("error")
def pin_stale(subject: Subject) -> Iterator[Problem]:
    """A tool, resource or prompt differs from its pin in the lock file of `bridge pin`.

    It was added, removed or changed since its review.

    The lock file is the one of `--pins`, or the one that the configuration names, or else `mcp.lock.json` next to
    it. See [Pins](../clients/pins.md).
    """
    for server in subject.servers:
        for drift in server.drift or ():
            remedy = "review the change, and run bridge pin"
            yield Problem(item=server.item, message=drift.brief, remedy=remedy, detail=drift.diff)


@rule("note")
def pins_missing(subject: Subject) -> Iterator[Problem]:
    """The tools of a server are not pinned: the server can change their descriptions after you have reviewed them.

    The same holds for resources and prompts that an earlier version of `bridge pin` left out of its lock file.
    `bridge pin` writes a lock file. See [Pins](../clients/pins.md).
    """
    for server in subject.servers:
        if server.drift is None and server.problem is None:
            yield Problem(item=server.item, message="its tools are not pinned", remedy="run bridge pin")
        for kind in server.unpinned:
            message = f"its {kind} are not in the lock file, and are used"
            yield Problem(item=server.item, message=message, remedy="run bridge pin")


@rule("warning")
def tool_left_out(subject: Subject) -> Iterator[Problem]:
    """A tool of a server cannot be used: its definition violates the protocol, or its name is taken.

    Every client of bridge leaves it out; other clients may refuse the whole list.
    """
    for server in subject.servers:
        if server.skipped:
            message = f"{with_count(len(server.skipped), 'tool')} cannot be used"
            remedy = "correct the definition on the server, or set a prefix"
            yield Problem(item=server.item, message=message, remedy=remedy, detail="\n".join(server.skipped))


def _is_path(command: str) -> bool:
    return "/" in command or "\\" in command


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _has_version(package: str, sign: str) -> bool:
    return sign in package[1:] or package.startswith((".", "/")) or "://" in package


def _literal_secrets(server: Server) -> Iterator[str]:
    """Paths of the texts in an entry that are secret and not references."""
    for key in ("headers", "env", "auth"):
        values = server.entry.get(key)
        for name, value in values.items() if isinstance(values, dict) else [(key, values)]:
            is_secret = names_secret(str(name)) and name not in {"auth", "type"}
            if isinstance(value, str) and "${" not in value and value and (is_secret or holds_key(value)):
                yield f"{key}.{name}" if isinstance(values, dict) else key
    for number, argument in enumerate(server.entry.get("args") or ()):
        if isinstance(argument, str) and holds_key(argument):
            yield f"args[{number}]"
    if isinstance(url := server.entry.get("url"), str) and holds_key(url):
        yield "url"
