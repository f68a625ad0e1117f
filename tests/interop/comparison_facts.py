"""Facts about FastMCP, the official SDK and pydantic-ai: ``comparison_facts.py BRIDGE`` prints them as JSON.

BRIDGE is a JSON array with the command line of ``bridge``. The result has, by library, the cell of each row of the
README's comparison. Each cell is found by using the library, or by looking for the name of the feature.
"""

import asyncio
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import metadata, version
from importlib.util import find_spec
from pathlib import Path
from socket import create_server
from typing import Any

import mcp
from fastmcp import Client, FastMCP  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]  # likewise
from fastmcp.mcp_config import MCPConfig  # type: ignore[import-not-found]  # likewise
from langchain.mcp import MCPAdapter  # type: ignore[import-not-found, unused-ignore]  # likewise
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import MCPServer
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset, load_mcp_toolsets

YES, NO, NO_SERVER, NO_GATEWAY = "yes", "no", "no server", "no gateway"
STEP_SECONDS = 60
SERVER = """
import os
from bridge import tool

@tool
def add(a: int, b: int) -> int:
    return a + b

@tool
def leave() -> None:
    os._exit(1)
"""


def yes_or_no(value: object) -> str:
    return YES if value else NO


def modules(package: str) -> set[str]:
    """Every module of a package, without importing it."""
    folder = Path(find_spec(package).submodule_search_locations[0])  # type: ignore[union-attr, index]  # it is installed
    files = [file.relative_to(folder).with_suffix("") for file in folder.rglob("*.py")]
    return {".".join([package, *file.parts]).removesuffix(".__init__") for file in files}


def mentions(package: str, *words: str) -> bool:
    """True if the source of a package has all of some words."""
    folder = Path(find_spec(package).submodule_search_locations[0])  # type: ignore[union-attr, index]  # as above
    texts = [file.read_text("utf-8", "replace") for file in folder.rglob("*.py")]
    return all(any(word in text for text in texts) for word in words)


def newest(package: str) -> dict[str, str]:
    """Cells of a library about the newest extensions, and about registries and bundles."""
    return {
        "serves and imports skills over MCP": yes_or_no(mentions(package, "skills/list", "skills/get")),
        "publishes events, and subscribes to those of servers": yes_or_no(
            mentions(package, "events/poll", "events/list")
        ),
        "serves a card, and finds servers by cards": yes_or_no(mentions(package, "server-card")),
        "finds servers in a registry, and writes bundles": yes_or_no(mentions(package, "/v0.1/servers", "mcpb")),
    }


def takes(function: Any, *names: str) -> bool:
    return set(names) <= set(inspect.signature(function).parameters)


def features() -> dict[str, dict[str, str]]:
    """Cells that a name or a signature decides."""
    fast, official, agents = (modules(name) for name in ("fastmcp", "mcp", "pydantic_ai"))
    offered = {"tool", "resource", "prompt"}
    assert not [name for name in dir(Agent) if "mcp" in name and name != "set_mcp_sampling_model"]
    no_server = NO_SERVER if not any(".server" in name for name in agents) else "a server"
    mounts = {"FastMCP": hasattr(FastMCP, "mount"), "official SDK": hasattr(MCPServer, "mount")}
    return {
        "FastMCP": {
            **newest("fastmcp"),
            "serves tools, resources and prompts": yes_or_no(offered <= set(dir(FastMCP))),
            "serves apps (`ui://`)": yes_or_no("fastmcp.apps" in fast),
            "lifespans, dependencies, middleware": yes_or_no(
                takes(FastMCP.__init__, "lifespan", "middleware") and "fastmcp.server.dependencies" in fast
            ),
            "mounts servers in servers": yes_or_no(mounts["FastMCP"]),
            "runs calls as tasks": "with an extra" if takes(FastMCP.__init__, "tasks") else NO,
            "is a gateway to other servers": yes_or_no(hasattr(import_module("fastmcp.server"), "create_proxy")),
            "uses a credential of each caller, as a gateway": (
                "forwards the caller's headers"
                if "forward_incoming_headers"
                in Path(import_module("fastmcp.server.providers.proxy").__file__ or "").read_text()
                else NO
            ),
            "lets clients search a server's tools": yes_or_no("fastmcp.server.transforms.search" in fast),
            "keeps large results readable in parts": (
                "cuts them off" if "fastmcp.server.middleware.response_limiting" in fast else NO
            ),
            "generates tools from OpenAPI": yes_or_no(hasattr(FastMCP, "from_openapi")),
            "limits the rate of calls": yes_or_no("fastmcp.server.middleware.rate_limiting" in fast),
            "probes, drain and metrics of a server": probes(fast),
            "pins tools, resources and prompts": pins(fast),
            "runs a model's loop over tools": NO if not any("agent" in name for name in fast) else "an agent",
            "chat model providers": "for sampling" if takes(Client.__init__, "sampling_handler") else "none",
            "evaluation, graphs, retrieval": further(fast),
            "uses resources and prompts of servers": uses(Client, "list_resources", "read_resource", "get_prompt"),
        },
        "official SDK": {
            **newest("mcp"),
            "serves tools, resources and prompts": yes_or_no(offered <= set(dir(MCPServer))),
            "serves apps (`ui://`)": yes_or_no("mcp.server.apps" in official),
            "lifespans, dependencies, middleware": yes_or_no(
                takes(MCPServer.__init__, "lifespan", "middleware") and "mcp.server.mcpserver.resolve" in official
            ),
            "mounts servers in servers": yes_or_no(mounts["official SDK"]),
            "runs calls as tasks": NO if not any(name.endswith("tasks") for name in official) else YES,
            "is a gateway to other servers": NO if not any("proxy" in name for name in official) else YES,
            "uses a credential of each caller, as a gateway": NO_GATEWAY,
            "lets clients search a server's tools": NO if not any("search" in name for name in official) else YES,
            "keeps large results readable in parts": NO if not any("limit" in name for name in official) else YES,
            "generates tools from OpenAPI": NO if not any("openapi" in name for name in official) else YES,
            "limits the rate of calls": NO if not any("rate_limit" in name for name in official) else YES,
            "probes, drain and metrics of a server": probes(official),
            "pins tools, resources and prompts": pins(official),
            "runs a model's loop over tools": NO if not any("agent" in name for name in official) else "an agent",
            "chat model providers": "none" if not any("openai" in name for name in official) else "some",
            "evaluation, graphs, retrieval": further(official),
            "uses resources and prompts of servers": uses(mcp.Client, "list_resources", "read_resource", "get_prompt"),
        },
        "pydantic-ai": {
            **newest("pydantic_ai"),
            **dict.fromkeys(
                (
                    "serves tools, resources and prompts",
                    "serves apps (`ui://`)",
                    "lifespans, dependencies, middleware",
                    "mounts servers in servers",
                    "is a gateway to other servers",
                    "uses a credential of each caller, as a gateway",
                    "generates tools from OpenAPI",
                    "limits the rate of calls",
                    "probes, drain and metrics of a server",
                ),
                no_server,
            ),
            "runs calls as tasks": (
                "waits for them, with an extra" if "mcp-tasks" in extras("pydantic-ai-slim") else NO
            ),
            "lets clients search a server's tools": "in its agents" if "pydantic_ai._tool_search" in agents else NO,
            "keeps large results readable in parts": NO if not any("spill" in name for name in agents) else YES,
            "pins tools, resources and prompts": pins(agents),
            "runs a model's loop over tools": yes_or_no(hasattr(Agent, "run")),
            "chat model providers": "many" if len(modules("pydantic_ai.providers")) > 10 else "few",
            "evaluation, graphs, retrieval": (
                "evaluation, graphs" if "evals" in extras("pydantic-ai-slim") and version("pydantic-graph") else NO
            ),
            "uses resources and prompts of servers": uses(
                MCPToolset, "list_resources", "read_resource", "list_prompts", "get_prompt"
            ),
        },
    }


def extras(package: str) -> list[str]:
    return metadata(package).get_all("Provides-Extra") or []


def pins(names: set[str]) -> str:
    return NO if not [name for name in names if {"pins", "pinning", "lockfile"} & {*name.split(".")}] else YES


def probes(names: set[str]) -> str:
    return NO if not [name for name in names if {"probes", "drain", "metrics", "health"} & {*name.split(".")}] else YES


def further(names: set[str]) -> str:
    return NO if not [name for name in names if {"evals", "graph", "retrieval"} & {*name.split(".")}] else YES


def uses(client: type, *methods: str) -> str:
    return yes_or_no(set(methods) <= set(dir(client)))


# --- configurations --------------------------------------------------------------------------------------------------


def configurations() -> dict[str, dict[str, str]]:
    """Cells about a usual `mcp.json`: variables, ``type: sse``, and the ``servers`` of VS Code."""
    os.environ["WORD"] = "value"
    with_variable = {"mcpServers": {"one": {"command": "x", "args": ["${WORD}"]}}}
    of_vs_code = {"servers": {"one": {"command": "x"}}}
    with_sse = {"mcpServers": {"one": {"type": "sse", "url": "http://127.0.0.1:1/events"}}}

    def read_by_fastmcp(value: dict[str, Any]) -> Any:
        (server,) = MCPConfig.from_dict(value).mcpServers.values()
        return server.to_transport()

    def read_by_pydantic_ai(value: dict[str, Any]) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mcp.json")
            path.write_text(json.dumps(value))
            toolset: Any = load_mcp_toolsets(path)[0]
            return toolset.wrapped.client.transport

    found = {}
    for name, read in (("FastMCP", read_by_fastmcp), ("pydantic-ai", read_by_pydantic_ai)):
        passed = [
            list(read(with_variable).args) == ["value"],
            type(read(with_sse)).__name__ == "SSETransport",
            succeeds(read, of_vs_code),
        ]
        found[name] = YES if all(passed) else "in part"
    official = NO if not any("config" in each.rpartition(".")[2] for each in modules("mcp.client")) else YES
    row = "reads an `mcp.json` with `${VAR}`, `type: sse` and VS Code's `servers`"
    return {name: {row: cell} for name, cell in {**found, "official SDK": official}.items()}


def succeeds(function: Any, *arguments: Any) -> bool:
    with suppress(Exception):
        function(*arguments)
        return True
    return False


# --- servers that restart --------------------------------------------------------------------------------------------


async def restarts(bridge: list[str], file: str) -> dict[str, dict[str, str]]:
    """Each client calls a server that restarts meanwhile: over HTTP without sessions, with them, and over stdio."""
    arguments = {"a": 1, "b": 2}

    def call(client: Any) -> Any:
        return (
            client.direct_call_tool("add", arguments)
            if isinstance(client, MCPToolset)
            else client.call_tool("add", arguments)
        )

    def leave(client: Any) -> Any:
        return client.direct_call_tool("leave", {}) if isinstance(client, MCPToolset) else client.call_tool("leave", {})

    command = [*bridge, "serve", file]
    process: dict[str, Any] = {"command": command[0], "args": command[1:]}
    over_http: dict[str, Any] = {
        "FastMCP": lambda url, mode: Client(url, mode=mode),
        "official SDK": lambda url, mode: mcp.Client(url, mode=mode),
        "pydantic-ai": lambda url, mode: MCPToolset(Client(url, mode=mode)),
    }
    over_stdio: dict[str, Any] = {
        "FastMCP": lambda: Client(StdioTransport(**process)),
        "official SDK": lambda: mcp.Client(stdio_client(StdioServerParameters(**process))),
        "pydantic-ai": lambda: MCPToolset(StdioTransport(**process)),
    }
    found = {}
    for name, make in over_http.items():
        survived = [await calls_again_over_http(command, call, make, mode) for mode in ("auto", "legacy")]
        survived.append(await calls_again_over_stdio(call, leave, over_stdio[name]()))
        outcomes: dict[tuple[bool, ...], str] = {
            (True, True, True): YES,
            (True, False, False): "over HTTP, without sessions",
        }
        cell = outcomes.get(tuple(survived), str(survived))
        found[name] = {"calls a server again after it has restarted": cell}
    return found


async def calls_again_over_http(command: list[str], call: Any, make: Any, mode: str) -> bool:
    with create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with suppress(Exception), running([*command, "--transport", "http", "--port", str(port)]) as restart:
        async with asyncio.timeout(STEP_SECONDS), make(f"http://127.0.0.1:{port}/mcp", mode) as client:
            await call(client)
            restart()
            try:
                await call(client)
            except Exception:  # noqa: BLE001 - of every library
                return False
            return True
    return False


async def calls_again_over_stdio(call: Any, leave: Any, made: Any) -> bool:
    with suppress(Exception):
        async with asyncio.timeout(STEP_SECONDS), made as client:
            await call(client)
            with suppress(Exception):
                await leave(client)
            try:
                await call(client)
            except Exception:  # noqa: BLE001 - of every library
                return False
            return True
    return False


@contextmanager
def running(command: list[str]) -> Iterator[Any]:
    """Run a server, and yield a function that kills it and starts another."""

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        while "serving" not in (line := process.stderr.readline()):
            assert line, "the server did not start"
        return process

    def end(process: subprocess.Popen[str]) -> None:
        process.kill()
        with process:
            pass

    current = [start()]
    try:

        def restart() -> None:
            end(current.pop())
            current.append(start())

        yield restart
    finally:
        for process in current:
            end(process)


# --- servers in the process of an agent ------------------------------------------------------------------------------


async def in_agents() -> dict[str, dict[str, str]]:
    """Name the agents that use a server's object without a process or a socket."""
    fast, official = FastMCP("sums"), MCPServer("sums")

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    fast.tool(add)
    official.tool()(add)
    found = {}
    for name, server in (("FastMCP", fast), ("official SDK", official)):
        takers = []
        with suppress(Exception):
            async with asyncio.timeout(STEP_SECONDS), MCPToolset(server) as toolset:
                await toolset.direct_call_tool("add", {"a": 1, "b": 2})
                takers.append("pydantic-ai")
        with suppress(Exception):
            async with asyncio.timeout(STEP_SECONDS), MCPAdapter(server) as adapter:
                await (await adapter.list_tools())[0].ainvoke({"a": 1, "b": 2})
                takers.append("LangChain")
        found[name] = {"its tools in agents of other frameworks, in process": ", ".join(takers) or NO}
    return {**found, "pydantic-ai": {"its tools in agents of other frameworks, in process": NO}}


async def used(bridge: list[str], file: str) -> list[dict[str, dict[str, str]]]:
    return [await restarts(bridge, file), await in_agents()]


def main(bridge: list[str]) -> dict[str, dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sums.py")
        file.write_text(SERVER)
        parts = [features(), configurations(), *asyncio.run(used(bridge, str(file)))]
    versions = {"FastMCP": "fastmcp-slim", "official SDK": "mcp", "pydantic-ai": "pydantic-ai-slim"}
    return {
        name: {"version": version(package)} | {row: cell for part in parts for row, cell in part[name].items()}
        for name, package in versions.items()
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
