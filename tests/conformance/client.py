"""The client that the official conformance suite tests: ``python tests/conformance/client.py URL``.

It is written as any user of the package would write it: it opens the server, calls every tool, reads every resource and
gets every prompt. What each scenario wants beyond that stands in `CALLS`. The suite tells the scenario and the
protocol's version in the environment.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from bridge import (
    ClientHandlers,
    Elicitation,
    ElicitationAnswer,
    HttpTransport,
    InvocationContext,
    McpToolProvider,
    Root,
    Sampling,
    SamplingAnswer,
    ServerConfig,
    Text,
    UrlElicitation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge import Connection

MODERN = "2026-07-28"
DEADLINE_SECONDS = 60
SAMPLES = {"string": "text", "number": 1.5, "integer": 1, "boolean": True, "array": [], "object": {}}

Calls: TypeAlias = "Iterable[tuple[str, Mapping[str, Any]]]"


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", MODERN)
    server = ServerConfig(
        name="suite",
        transport=HttpTransport(url),
        protocol="auto" if version >= MODERN else "legacy",
        required=True,
        timeout_seconds=DEADLINE_SECONDS,
    )
    handlers = ClientHandlers(elicitation=fill_in, sampling=complete, roots=folders)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([server], handlers=handlers) as provider:
            for name, arguments in CALLS.get(scenario, every_tool)(provider):
                result = await provider.call(name, arguments)
                sys.stderr.write(f"{name}: {'failed: ' if result.is_error else ''}{result.text}\n")
            await everything_else(provider.connections["suite"])


# --- what is called --------------------------------------------------------------------------------------------------


def every_tool(provider: McpToolProvider) -> Calls:
    """Every tool, with a value for whatever it requires."""
    for tool in provider.tools:
        schema = tool.specification.parameters
        properties = schema.get("properties", {})
        yield tool.name, {name: sample(properties.get(name, {})) for name in schema.get("required", ())}


def told_calls(provider: McpToolProvider) -> Calls:
    """The calls that the suite tells."""
    context = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    return [(call["name"], call["arguments"]) for call in context["toolCalls"]]


def echoed_schema(provider: McpToolProvider) -> Calls:
    """The schema of one tool, to the other."""
    schema = provider.tools.get("json_schema_2020_12_tool").specification.parameters
    return [("json_schema_echo", {"schema": schema})]


CALLS: dict[str, Callable[[McpToolProvider], Calls]] = {
    "http-custom-headers": told_calls,
    "json-schema-2020-12-preservation": echoed_schema,
}


def sample(schema: Mapping[str, Any]) -> Any:
    if "default" in schema:
        return schema["default"]
    return schema["enum"][0] if "enum" in schema else SAMPLES.get(schema.get("type", ""))


async def everything_else(connection: Connection) -> None:
    """What a server has beside tools."""
    capabilities = connection.server_info.capabilities if connection.server_info is not None else {}
    if "resources" in capabilities:
        for resource in (await connection.request("resources/list"))["resources"]:
            await connection.request("resources/read", {"uri": resource["uri"]})
    if "prompts" in capabilities:
        for prompt in (await connection.request("prompts/list"))["prompts"]:
            await connection.request("prompts/get", {"name": prompt["name"]})


# --- what is answered ------------------------------------------------------------------------------------------------


async def fill_in(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
    """Agree, with the defaults of the form."""
    if isinstance(question, UrlElicitation):
        return ElicitationAnswer("accept")
    fields = question.schema.get("properties", {})
    return ElicitationAnswer("accept", {name: sample(field) for name, field in fields.items()})


async def complete(question: Sampling, context: InvocationContext) -> SamplingAnswer:
    return SamplingAnswer((Text("an answer"),), model="none")


async def folders(context: InvocationContext) -> list[Root]:
    return [Root("file:///tmp")]


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1])
