"""Servers as registries and cards describe them, as entries of ``mcp.json``.

Formats: ``server.json`` of the MCP registry (2025-12-11), and MCP Server Cards (SEP-2127) with the same ``remotes``.
What users have to give becomes ``${VAR}``. For a URL, the name of a variable begins with ``BRIDGE_CARD_`` and the host
that has served the card, or with ``BRIDGE_SERVER_`` and the domain in the name of the server, so that no description
can ask for another secret of the environment. All other text is literal. Packages are pinned to their exact version.
"""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bridge.errors import WireError
from bridge.text import clip, short_repr
from bridge.types import require_object, require_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bridge.types import Json

    Naming = Callable[[str], str]
    """Names of environment variables by those of inputs."""

SERVER_JSON_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
"""Schema of a ``server.json``."""
_MAX_DESCRIPTION_CHARS = 100
_SCHEMA = re.compile(r"https://static\.modelcontextprotocol\.io/schemas/[\w.-]+/server(?:-card)?\.schema\.json#?")
_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_VARIABLE = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")
_NOT_OF_A_VARIABLE = re.compile(r"[^A-Za-z0-9_]+")
_NOT_OF_A_PART = re.compile(r"[^A-Za-z0-9]+")
_PLAIN_OWNER = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)*")
_DIGEST_CHARS = 8
_VERSION = re.compile(r"[0-9A-Za-z][\w.+!-]*")
_TRANSPORTS = {"streamable-http": "http", "sse": "sse"}


def is_server_json(document: Any) -> bool:
    """True for a ``server.json`` or a card, by its schema."""
    schema = document.get("$schema") if isinstance(document, dict) else None
    return isinstance(schema, str) and _SCHEMA.fullmatch(schema) is not None


class _Reference(str):
    """A reference to an environment variable, among literal texts."""

    __slots__ = ()


def entry_of(document: Any, *, host: str | None = None) -> tuple[str, Json]:
    """Return the short name of a server, and its entry of ``mcp.json``: of a URL, or else of a package.

    Args:
        document: The ``server.json`` or card.
        host: Host of a card that was fetched, which only says where to connect: its packages are ignored. With its
            scheme, unless that is https, and its port, unless that is the scheme's.

    Raises:
        WireError: The document is malformed, or describes no server that can be reached or started.
    """
    described = require_object(document, "the description of a server")
    name = require_text(described.get("name"))
    if not _NAME.fullmatch(name):
        raise WireError(f"the name of a server is a reversed domain, a slash and a name, not {short_repr(name)}")
    short_name = name.rpartition("/")[2]
    remotes = [require_object(each, "a remote") for each in _list(described, "remotes")]
    for kind in _TRANSPORTS:
        for remote in remotes:
            if remote.get("type") == kind:
                kind_of_owner, owner = ("SERVER", name.partition("/")[0]) if host is None else ("CARD", host)
                return short_name, _of_remote(remote, _owned(kind_of_owner, owner, short_name))
    if host is not None:
        raise WireError(f"the card of {name!r} has no URL of a server: 'remotes' of a known type")
    packages = [require_object(each, "a package") for each in _list(described, "packages")]
    for package in packages:
        command = _COMMANDS.get(str(package.get("registryType")))
        if command is not None and _transport_of(package) == "stdio":
            return short_name, _of_package(package, command)
    kinds = ", ".join(sorted({str(each.get("registryType")) for each in packages})) or "none"
    raise WireError(
        f"{name!r} has neither a URL nor a package for {', '.join(_COMMANDS)} over stdio; its packages: {kinds}"
    )


def _list(described: Mapping[str, Any], member: str) -> list[Any]:
    found = described.get(member) or []
    if not isinstance(found, list):
        raise WireError(f"{member!r} is a list, not {short_repr(found)}")
    return found


def _of_remote(remote: Json, naming: Naming) -> Json:
    url = _filled(require_text(remote.get("url")), remote.get("variables"), naming)
    if not url.startswith(("https://", "http://")):  # in literal text, so that no value changes it
        raise WireError(f"the URL of a remote begins with https://, not {short_repr(url)}")
    entry: Json = {"type": _TRANSPORTS[remote["type"]], "url": url}
    headers = _given(_list(remote, "headers"), naming)
    return entry | ({"headers": headers} if headers else {})


def _of_package(package: Json, command: Callable[[str, str, list[str], Json], list[str]]) -> Json:
    identifier, version = _escaped(require_text(package.get("identifier"))), package.get("version") or ""
    if identifier.startswith("-") or not (version == "" or _VERSION.fullmatch(require_text(version))):
        raise WireError(f"a package has an identifier and one exact version, not {identifier!r} and {version!r}")
    if not version and package["registryType"] != "oci":
        raise WireError(f"the package {identifier!r} has no version, so that it cannot be pinned")
    env = _given(_list(package, "environmentVariables"), _own_name)
    runtime = _arguments(_list(package, "runtimeArguments"))
    program, *rest = command(identifier, version, runtime, env)
    entry: Json = {"command": program, "args": [*rest, *_arguments(_list(package, "packageArguments"))]}
    return entry | ({"env": env} if env else {})


def _transport_of(package: Json) -> Any:
    transport = package.get("transport")
    return transport.get("type", "stdio") if isinstance(transport, dict) else "stdio"


def _escaped(text: str) -> str:
    return text.replace("${", "$${")


def _owned(kind: str, owner: str, server: str) -> Naming:
    """Return the naming of inputs of a server; no two owners have a variable in common.

    An owner that a variable cannot spell has a digest at the end. No part has two underscores that follow one another.
    """
    prefix = f"BRIDGE_{kind}_{_part(owner)}__{_part(server)}__"
    digest = "" if _PLAIN_OWNER.fullmatch(owner) else f"__{sha256(owner.encode()).hexdigest()[:_DIGEST_CHARS]}"
    return lambda name: f"{prefix}{_part(name)}{digest}"


def _part(text: str) -> str:
    return _NOT_OF_A_PART.sub("_", text).strip("_").upper()


def _own_name(name: str) -> str:
    """Naming of the inputs of a package: variables of the environment under their own names."""
    return _NOT_OF_A_VARIABLE.sub("_", name).upper()


def _filled(text: str, variables: Any, naming: Naming) -> str:
    """Return a text whose ``{variables}`` are references to what users have to give.

    Args:
        text: The text.
        variables: Description of each variable by its name.
        naming: Names of the environment variables.
    """
    known = variables if isinstance(variables, dict) else {}
    parts: list[str] = []
    end = 0
    for found in _VARIABLE.finditer(text):
        if isinstance(variable := known.get(found[1]), dict):
            fixed = variable.get("value")
            value = fixed if isinstance(fixed, str) else _asked(found[1], variable, naming)
            parts += text[end : found.start()], value or ""
            end = found.end()
    return _joined([*parts, text[end:]])


def _joined(parts: Iterable[str]) -> str:
    """Join literal texts and references; neighbouring literals are escaped together, so that they make no reference."""
    runs = groupby(parts, lambda part: isinstance(part, _Reference))
    return "".join("".join(run) if is_reference else _escaped("".join(run)) for is_reference, run in runs)


def _value(name: str, given: Mapping[str, Any], naming: Naming) -> str | None:
    """Return the value of an input: a fixed one, a reference, or None for one that may be left out."""
    if isinstance(value := given.get("value"), str):
        return _filled(value, given.get("variables"), naming)
    asked = _asked(name, given, naming)
    return None if asked is None else _joined([asked])


def _asked(name: str, given: Mapping[str, Any], naming: Naming) -> str | None:
    """Return the reference to an input without a fixed value, or its literal default; None if it may be left out."""
    variable = naming(name)
    if isinstance(default := given.get("default"), str) and not given.get("isSecret"):
        return default if set(default) & set("{}") else _Reference(f"${{{variable}:-{default}}}")
    return _Reference(f"${{{variable}}}") if given.get("isRequired") or given.get("isSecret") else None


def _given(inputs: list[Any], naming: Naming) -> Json:
    """Return environment variables or headers by name."""
    found: Json = {}
    for each in inputs:
        given = require_object(each, "an input")
        name = require_text(given.get("name"))
        if (value := _value(name, given, naming)) is not None:
            found[name] = value
    return found


def _arguments(given: list[Any]) -> list[str]:
    arguments: list[str] = []
    for each in given:
        argument = require_object(each, "an argument")
        name = argument.get("name")
        value = _value(str(name or argument.get("valueHint") or "ARGUMENT").lstrip("-"), argument, _own_name)
        if argument.get("type") == "named":
            has_value = value is not None
            if has_value or not {"isRequired", "valueHint", "format"} & argument.keys():
                arguments += [_escaped(require_text(name)), *([str(value)] if has_value else [])]
        elif value is not None:
            arguments.append(value)
    return arguments


def _docker(identifier: str, version: str, runtime: list[str], env: Json) -> list[str]:
    image = identifier if not version or ":" in identifier.rpartition("/")[2] else f"{identifier}:{version}"
    passed = [part for name in env for part in ("-e", _escaped(name))]
    return ["docker", "run", "-i", "--rm", *passed, *runtime, image]


_COMMANDS: Mapping[str, Callable[[str, str, list[str], Json], list[str]]] = {
    "pypi": lambda identifier, version, runtime, _: ["uvx", *runtime, f"{identifier}=={version}"],
    "npm": lambda identifier, version, runtime, _: ["npx", "-y", *runtime, f"{identifier}@{version}"],
    "nuget": lambda identifier, version, runtime, _: ["dnx", *runtime, f"{identifier}@{version}", "--yes"],
    "oci": _docker,
}
"""Commands that start a package, by the type of its registry."""


def server_json_of(
    name: str,
    project: Mapping[str, Any],
    *,
    url: str | None = None,
    arguments: Sequence[str] = (),
    secrets: Sequence[str] = (),
) -> Json:
    """Return the ``server.json`` of a Python project.

    Args:
        name: Name with a reversed domain: ``io.github.ada/weather``.
        project: The section ``[project]`` of its ``pyproject.toml``.
        url: URL of the server; None to describe the project's package.
        arguments: Arguments of the package's command.
        secrets: Environment variables that users have to set.

    Raises:
        WireError: The name is malformed, or the project has no version or description.
    """
    if not _NAME.fullmatch(name):
        raise WireError(f"the name of a server is a reversed domain, a slash and a name, not {short_repr(name)}")
    for member in ("name", "version", "description"):
        if not isinstance(project.get(member), str) or not project[member]:
            raise WireError(f"[project] has no {member!r}, which a registry needs; a dynamic one is not read")
    document: Json = {
        "$schema": SERVER_JSON_SCHEMA,
        "name": name,
        "description": clip(project["description"], _MAX_DESCRIPTION_CHARS - 1),
        "version": project["version"],
    }
    urls = {key.lower(): each for key, each in (project.get("urls") or {}).items()}
    repository = next((urls[key] for key in ("repository", "source", "code") if key in urls), None)
    if repository is not None:
        host = "github" if "github.com/" in repository else "gitlab" if "gitlab.com/" in repository else None
        document |= {} if host is None else {"repository": {"url": repository, "source": host}}
    if "homepage" in urls:
        document["websiteUrl"] = urls["homepage"]
    needed = [{"name": each, "isRequired": True, "isSecret": True} for each in secrets]
    if url is not None:
        remote: Json = {"type": "streamable-http", "url": url}
        return document | {"remotes": [remote | ({"headers": needed} if needed else {})]}
    package: Json = {
        "registryType": "pypi",
        "identifier": project["name"],
        "version": project["version"],
        "transport": {"type": "stdio"},
    }
    if arguments:
        package["packageArguments"] = [{"type": "positional", "value": each} for each in arguments]
    return document | {"packages": [package | ({"environmentVariables": needed} if needed else {})]}
