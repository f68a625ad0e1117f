"""A call of the page as a ``bridge call`` line, and as a test."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.protocol.param_headers import header_names, header_value, param_headers
from bridge.protocol.versions import CAPABILITIES_KEY, CLIENT_INFO_KEY, MODERN_VERSIONS, PROTOCOL_VERSION_KEY
from bridge.text import escaped_json

if TYPE_CHECKING:
    from bridge.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Target that a server comes from, as it is named on the command line."""

    argument: str = ""
    """The target, such as ``tools.py`` or ``mcp.json#name``; empty for a command."""
    command: tuple[str, ...] = ()
    """The command after ``--``."""
    is_python: bool = False
    """True for a Python target or an OpenAPI document, which ``bridge serve`` serves over stdio."""
    options: tuple[str, ...] = ()
    """Options of the command that belong to the target."""
    headers: tuple[str, ...] = ()
    """Names of the headers of ``--header``."""
    prefix: str = ""
    """Text before the names of its tools."""


_CLIENT = {"name": "curl", "version": "1"}
_NO_LINE = "# bridge call cannot name this tool: its name begins with - or =, or has invisible characters"


def as_call_line(origin: Origin, tool: str, arguments: Json) -> str:
    """Write a call as a shell command; values of headers are left to variables of the environment.

    Names and values come from the server and its users: none becomes an option, and none contains control characters,
    which a terminal may execute when the line is pasted.
    """
    name = origin.prefix + tool
    if not name or name[0] in "-=" or not _is_visible(name):  # zsh expands =word, which shlex leaves unquoted
        return _NO_LINE
    words = ["bridge", "call", *([origin.argument] if origin.argument else []), name, *origin.options]
    assignments = [f"{name}={_plain_text(value)}" for name, value in arguments.items()]
    if all(map(_is_name, arguments)) and all(map(_is_plain, arguments.values())) and all(map(_is_visible, assignments)):
        words += assignments
    else:
        words += ["--json", escaped_json(json.dumps(arguments, ensure_ascii=False))]
    for name in origin.headers:
        words += ["--header", f"{name}: ${{{header_variable(name)}}}"]
    return shlex.join([*words, *(["--", *origin.command] if origin.command else [])])


def as_test(origin: Origin, tool: str, arguments: Json, answer: Json | None) -> str:
    """Write a call as a test for pytest, which expects the outcome of the call."""
    result = (answer or {}).get("result")
    name = re.sub(r"\W+", "_", tool).strip("_").lower()
    imports, server = _server(origin)
    lines = [
        f"from bridge import {', '.join(imports)}",
        "",
        f"SERVER = {server}",
        "",
        "",
        f"def test_{name or 'call'}() -> None:",
        "    with connect(SERVER) as tools:",
        f"        result = tools.call({origin.prefix + tool!r}, {arguments!r})",
        *(f"    assert {expectation}" for expectation in _expectations(result)),
    ]
    return "\n".join(lines) + "\n"


def as_program(origin: Origin, tool: str, arguments: Json) -> str:
    """Write a call as a Python program, which prints the result."""
    imports, server = _server(origin)
    lines = [
        f"from bridge import {', '.join(imports)}",
        "",
        f"SERVER = {server}",
        "",
        "with connect(SERVER) as tools:",
        f"    result = tools.call({origin.prefix + tool!r}, {arguments!r})",
        "    print(result.text)",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """The address of a server over streamable HTTP."""

    url: str
    """Its URL, without secrets."""
    headers: tuple[str, ...] = ()
    """Names of the headers that requests have; their values are left to the environment."""


def as_curl(
    address: HttpAddress | None, version: str | None, tool: str, arguments: Json, schema: Any = None
) -> str | None:
    """Write a call as commands for curl; None for a server that curl cannot reach.

    Every name and value is quoted for the shell, is the value of a long option, and is neither a file for curl
    (``--data-raw``) nor a pattern (``--globoff``).

    Args:
        address: Where the server is.
        version: Agreed protocol version; one of the handshake era takes a session.
        tool: Name of the tool.
        arguments: The arguments.
        schema: Input schema of the tool, which may declare that arguments are repeated in headers.
    """
    if address is None or version is None:
        return None
    params: Json = {"name": tool, "arguments": arguments}
    if version in MODERN_VERSIONS:
        params["_meta"] = {PROTOCOL_VERSION_KEY: version, CLIENT_INFO_KEY: _CLIENT, CAPABILITIES_KEY: {}}
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": header_value(tool)}
        headers |= param_headers(header_names(schema), arguments)
        return _curl(address, headers, _message(1, "tools/call", params)) + "\n"
    handshake = {"protocolVersion": version, "capabilities": {}, "clientInfo": _CLIENT}
    begin = _curl(address, {}, _message(1, "initialize", handshake), "--dump-header", "-", "--output", "/dev/null")
    session = {"MCP-Protocol-Version": version}
    return (
        f"session=$({begin} | tr -d '\\r' | sed -n 's/^mcp-session-id: *//Ip')\n"
        f"{_curl(address, session, _message(None, 'notifications/initialized', {}), is_session=True)}\n"
        f"{_curl(address, session, _message(2, 'tools/call', params), is_session=True)}\n"
    )


def _message(number: int | None, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", **({} if number is None else {"id": number}), "method": method, "params": params}


def _curl(address: HttpAddress, headers: dict[str, str], body: Json, *options: str, is_session: bool = False) -> str:
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    words = ["curl", "--silent", "--show-error", "--globoff", *options, "--url", shlex.quote(address.url)]
    for name, value in sent.items():
        words += ["--header", shlex.quote(f"{name}: {value}")]
    for name in address.headers:  # the variable is expanded in quotes, and so is one word whatever its value
        words += ["--header", f'{shlex.quote(f"{name}: ")}"${header_variable(name)}"']
    if is_session:
        words += ["--header", '"Mcp-Session-Id: $session"']
    words += ["--data-raw", shlex.quote(escaped_json(json.dumps(body, ensure_ascii=False)))]
    return " ".join(words)


def _expectations(result: Json | None) -> list[str]:
    if result is None:
        return ["result.is_error"]
    is_error = result.get("isError") is True
    first = "result.is_error" if is_error else "not result.is_error"
    structured = result.get("structuredContent")
    if structured is not None:
        return [first, f"result.structured_content == {structured!r}"]
    content = result.get("content")
    texts = [block.get("text") for block in content if block.get("type") == "text"] if isinstance(content, list) else []
    return [first, f"result.text == {chr(10).join(map(str, texts))!r}"] if texts else [first]


def _server(origin: Origin) -> tuple[list[str], str]:
    """Names to import, and the argument of ``connect``."""
    if origin.headers:
        headers = ", ".join(f"{name!r}: '${{{header_variable(name)}}}'" for name in origin.headers)
        return ["connect"], f"{{'mcpServers': {{'server': {{'url': {origin.argument!r}, 'headers': {{{headers}}}}}}}}}"
    command = ("bridge", "serve", origin.argument, *origin.options) if origin.is_python else origin.command
    if not command:
        return ["connect"], repr(origin.argument)
    transport = f"StdioTransport({command[0]!r}, args={command[1:]!r})"
    return ["ServerConfig", "StdioTransport", "connect"], f"ServerConfig(name='server', transport={transport})"


def header_variable(header: str) -> str:
    """Name of the variable of the environment that a header's value is left to."""
    return re.sub(r"\W", "_", header).upper()


def _is_name(name: str) -> bool:
    """True for a name that ``name=value`` expresses, and that is no option."""
    return name != "" and not name.startswith("-") and "=" not in name


def _is_visible(text: str) -> bool:
    return "\n" not in text and escaped_json(text) == text


def _is_plain(value: Any) -> bool:
    """True for a value that ``name=value`` expresses whatever the schema says."""
    return isinstance(value, bool | int | float) or (isinstance(value, str) and value != "" and not _is_json(value))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
