"""The client for the official conformance suite: ``python -m tests.conformance.client WAY URL``.

It is written as a user of the package would write it: it opens the server, calls every tool, reads every resource and
gets every prompt. `CALLS` has the further steps of each scenario. The suite sets the scenario and the protocol version
in the environment. The way is the event loop: ``asyncio``, which has own HTTP connections, or ``trio``, on which the
general HTTP client sends everything; or ``gateway``, a caller of a gateway, which has a credential of the caller's own.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import anyio
import httpx2

from bridge import ClientHandlers, HttpTransport, InvocationContext, McpToolProvider, ServerConfig, Text
from bridge.client.auth.assertions import exchange_assertion
from bridge.client.auth.grants import ClientCredentials, IdentityAssertion, OAuthLogin
from bridge.client.auth.sign_in import SignIn
from bridge.private_files import STATE_VARIABLE
from bridge.tools import Elicitation, ElicitationAnswer, Root, Sampling, SamplingAnswer, UrlElicitation
from tests.conformance import gateway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from bridge.client import Connection
    from bridge.client.auth.grants import Grant

MODERN = "2026-07-28"
DEADLINE_SECONDS = 110
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
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
    with anyio.fail_after(DEADLINE_SECONDS), ExitStack() as stack:
        handlers = ClientHandlers(elicitation=fill_in, sampling=complete, roots=folders)
        if sys.argv[1] == "gateway":
            context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
            if scenario in GRANTS or "client_secret" in context:
                context["issuer"] = await issuer_of(url)
            entry = gateway.entry(url, scenario, context, protocol=server.protocol)
            served = stack.enter_context(gateway.gateway(entry, context))
            server = await gateway.connected(served, server.protocol)
            handlers, auth = replace(handlers, elicitation=partial(gateway.open_link, served.origin, fill_in)), None
        else:
            auth = await signing(scenario)
        async with McpToolProvider([server], handlers=handlers, auth=auth) as provider:
            for name, arguments in CALLS.get(scenario, every_tool)(provider):
                result = await provider.call(name, arguments)
                sys.stderr.write(f"{name}: {'failed: ' if result.is_error else ''}{result.text}\n")
            await everything_else(provider.connections[server.name])
            if scenario.startswith("sep-2640-"):
                await use_skills(provider, loads=not scenario.endswith("no-prefetch"))


# --- who it is -------------------------------------------------------------------------------------------------------


async def signing(scenario: str) -> Callable[[ServerConfig], SignIn | None] | None:
    """Return the sign-in: with the suite's credentials, or as a user whom its authorization server trusts."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    make_grant = GRANTS.get(scenario, a_person)
    grant = await make_grant(context, sys.argv[-1])
    os.environ[STATE_VARIABLE] = mkdtemp()
    return lambda config: SignIn(sys.argv[-1], grant, show_page=browse)


async def browse(url: str) -> None:
    """Agree to everything."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def a_person(context: Mapping[str, Any], url: str) -> Grant:
    return OAuthLogin(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        issuer=context.get("issuer"),
        client_metadata_url=CLIENT_METADATA_URL,
    )


async def a_program(context: Mapping[str, Any], url: str) -> Grant:
    return ClientCredentials(
        client_id=context["client_id"],
        client_secret=context.get("client_secret"),
        private_key=context.get("private_key_pem"),
        signing_algorithm=context.get("signing_algorithm", "RS256"),
        issuer=await issuer_of(url),
    )


async def an_employee(context: Mapping[str, Any], url: str) -> Grant:
    async def id_token() -> str:
        return str(context["idp_id_token"])

    return IdentityAssertion(
        client_id=context["client_id"],
        client_secret=context["client_secret"],
        issuer=await issuer_of(url),
        assertion=exchange_assertion(
            context["idp_token_endpoint"], client_id=context["idp_client_id"], id_token=id_token
        ),
    )


async def a_workload(context: Mapping[str, Any], url: str) -> Grant:
    async def assertion(issuer: str, resource: str) -> str:
        return str(context["valid_jwt"])

    return IdentityAssertion(client_id=context["client_id"], issuer=await issuer_of(url), assertion=assertion)


async def issuer_of(url: str) -> str:
    """Return the authorization server, which a user configures: the suite does not announce it."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient() as http:
        found = await http.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
    return str(found.json()["authorization_servers"][0])


GRANTS: dict[str, Callable[[Mapping[str, Any], str], Awaitable[Grant]]] = {
    "auth/client-credentials-basic": a_program,
    "auth/client-credentials-jwt": a_program,
    "auth/enterprise-managed-authorization": an_employee,
    "auth/wif-jwt-bearer": a_workload,
}


# --- what is called --------------------------------------------------------------------------------------------------


def every_tool(provider: McpToolProvider) -> Calls:
    """Call every tool, with a value for each required argument."""
    for tool in provider.tools:
        schema = tool.specification.parameters
        properties = schema.get("properties", {})
        yield tool.name, {name: sample(properties.get(name, {})) for name in schema.get("required", ())}


def told_calls(provider: McpToolProvider) -> Calls:
    """Make the calls that the suite specifies."""
    context = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    return [(call["name"], call["arguments"]) for call in context["toolCalls"]]


def echoed_schema(provider: McpToolProvider) -> Calls:
    """Send the schema of one tool to the other."""
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
    """Use the resources and prompts of a server."""
    capabilities = connection.server_info.capabilities if connection.server_info is not None else {}
    if "resources" in capabilities:
        for resource in (await connection.request("resources/list"))["resources"]:
            await connection.request("resources/read", {"uri": resource["uri"]})
    if "prompts" in capabilities:
        for prompt in (await connection.request("prompts/list"))["prompts"]:
            await connection.request("prompts/get", {"name": prompt["name"]})


async def use_skills(provider: McpToolProvider, *, loads: bool) -> None:
    """List skills, and load each with all of its files; one that differs from its entry ends the program."""
    for skill in await provider.skills.list():
        for file in skill.files or () if loads else ():
            content = await provider.skills.read(skill, file.uri)
            sys.stderr.write(f"{file.uri}: {len(content.content)}\n")


# --- what is answered ------------------------------------------------------------------------------------------------


async def fill_in(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
    """Accept, with the defaults of the form."""
    if isinstance(question, UrlElicitation):
        return ElicitationAnswer("accept")
    fields = question.schema.get("properties", {})
    return ElicitationAnswer("accept", {name: sample(field) for name, field in fields.items()})


async def complete(question: Sampling, context: InvocationContext) -> SamplingAnswer:
    return SamplingAnswer((Text("an answer"),), model="none")


async def folders(context: InvocationContext) -> list[Root]:
    return [Root("file:///tmp")]


if __name__ == "__main__":
    anyio.run(main, sys.argv[-1], backend="trio" if sys.argv[1] == "trio" else "asyncio")
