"""Gateway: the tools, resources and prompts of several servers, and local ones, as those of one server.

Gateway ── .features ── local tools, resources and prompts, and proxies for remote ones under unused names
   ╰── McpToolProvider ── the servers (`bridge.client.provider`)
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from bridge.client.auth.ready import NO_AUTH
from bridge.client.provider import McpToolProvider
from bridge.client.remote_feature import RemoteReader, RemoteRenderer
from bridge.client.remote_tool import RemoteExecutor
from bridge.errors import DefinitionError
from bridge.events.source import CombinedEvents
from bridge.gateway.caller_features import ConnectExecutor, GatewayCallerFeatures
from bridge.gateway.extensions import ForwardedExtensions, GatewayExtensions
from bridge.gateway.features import GatewayResources, merged, missing_notice, require_listed, warn_of_missing
from bridge.gateway.forwarded_headers import forwarded_headers
from bridge.gateway.handlers import proxy_handlers
from bridge.gateway.proxy import ProxyExecutor, ProxyReader, ProxyRenderer
from bridge.gateway.suspended_calls import HELD_SECONDS, MAX_HELD_CALLS, SuspendedCalls
from bridge.gateway.tasks import GatewayTasks
from bridge.prompts.box import PromptBox
from bridge.server.caller_features import CallerView
from bridge.server.features import Features
from bridge.server.start import Start
from bridge.skills.source import CombinedSkills
from bridge.tools.annotated_checks import checked
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    import httpx2

    from bridge.client.callers import CallerAuths
    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.client.connection.processes import ProcessOptions
    from bridge.client.connection.status import ReconnectPolicy
    from bridge.client.tool_catalog import ServerStatus
    from bridge.client.upstream import Upstream
    from bridge.gateway.credentials.broker import CredentialBroker
    from bridge.gateway.credentials.connecting import Connecting
    from bridge.gateway.credentials.identification import SignInClient
    from bridge.gateway.credentials.questions import AskingExecutor
    from bridge.prompts.prompt import Prompt
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.server.auth.access import Access
    from bridge.tools.caller import Caller
    from bridge.tools.tool import Tool

_logger = logging.getLogger("bridge.gateway")

START_SECONDS = 10.0
"""Default time to wait for servers on start, in seconds. Tools of slower servers are added later."""
EARLY_SECONDS = 2.0
"""Seconds after which a gateway that answers early is open, although optional servers are not listed yet."""

_Executor = TypeVar("_Executor")


class Gateway:
    """Remote servers published as one server. Belongs to the event loop in which it is opened.

    Publish `features` with a `bridge.server.server.Server` over any transport while the gateway is open.

    Args:
        servers: The servers, with unique names (see `bridge.gateway.merging.merged_servers`).
        local: A `bridge.Server`, features, or another source of local tools, resources and prompts, which keep their
            names; changes apply. None for none.
        prefix: Use of server names as prefixes of tool names; see `bridge.client.provider.McpToolProvider`.
        forward_headers: Headers of a caller to forward to servers over HTTP. Defaults to none; credentials are never
            forwarded.
        held_seconds: Maximum wait of a suspended call for its caller's answer. Only needed for servers of protocol
            versions before 2026-07-28 whose callers use 2026-07-28.
        max_held_calls: Maximum number of suspended calls.
        start_seconds: Maximum wait for optional servers on opening; tools of slower servers are added later.
        answers_early: Open without that wait, at most `EARLY_SECONDS` after the required servers are listed; lists wait
            until `settle` returns, which has to be called then.
        broker: Credentials of the callers, for servers with ``"per": "caller"``. None keeps them in memory.
        sign_in_client: This gateway as a client of its callers' issuer, at which they log in to open the pages on which
            they give credentials; None to use its client ID metadata document.
        auth: Returns the authentication for a server's HTTP requests; None uses only the configured headers.
        reconnect: Reconnect policy.
        processes: Options of servers that are child processes; None for the defaults.

    Raises:
        DefinitionError: Two servers have the same name, or a header cannot be forwarded.
    """

    @checked(may_be_zero=("start_seconds", "max_held_calls"))
    def __init__(
        self,
        servers: Iterable[ServerConfig] = (),
        *,
        local: object = None,
        prefix: Prefixing | None = None,
        forward_headers: Iterable[str] = (),
        held_seconds: float = HELD_SECONDS,
        max_held_calls: int = MAX_HELD_CALLS,
        start_seconds: float = START_SECONDS,
        answers_early: bool = False,
        broker: CredentialBroker | None = None,
        sign_in_client: SignInClient | None = None,
        auth: Callable[[ServerConfig], httpx2.Auth | None] | None = None,
        reconnect: ReconnectPolicy | None = None,
        processes: ProcessOptions | None = None,
    ) -> None:
        self.tools = ToolBox()
        """The tools to publish."""
        servers = list(servers)
        self._spills = any(server.spill_chars is not None for server in servers)
        features = Features() if local is None else Features.of(local)
        self._local = features.tools
        headers_supplier = forwarded_headers(forward_headers)
        self.broker = broker
        """Credentials of the callers; None if no server has had any."""
        self._auth = auth
        self.provider = McpToolProvider(
            servers,
            prefix=prefix,
            local=self._local,  # registered first, so that it sees changes before this gateway
            handlers=proxy_handlers(),
            headers_supplier=headers_supplier,
            auth=self._own_auth,
            caller_auths=self._caller_auths,
            reconnect=reconnect,
            processes=processes,
            features=("resources", "prompts"),
            validates_results=False,
        )
        """The provider of the servers' tools, resources and prompts."""
        self._start_seconds = start_seconds
        self._deadline = 0.0
        self._start = Start() if answers_early else None
        self._forwards_headers = headers_supplier is not None
        self._suspended_calls = SuspendedCalls(held_seconds=held_seconds, max_held_calls=max_held_calls)
        self._tasks = GatewayTasks(self.provider)
        self._connecting = None if self.broker is None else _connecting(self.broker, sign_in_client)
        self._local.on_change(self._rebuild)
        self.provider.tools.on_change(self._rebuild)
        self._rebuild()
        self.resources = GatewayResources(
            self.provider.resources, features.resources, self.proxied_resource, self._updated_for
        )
        """The resources to publish."""
        self.prompts = PromptBox()
        """The prompts to publish."""
        self._lifespans, self._mounted_lifespans = features.lifespans, features.mounted_lifespans
        self._middleware, self._parts = features.middleware, features.parts
        self._skills = CombinedSkills([*([] if features.skills is None else [features.skills]), self.provider.skills])
        self._events = CombinedEvents([*([] if features.events is None else [features.events]), self.provider.events])
        self.provider.events.local_types = features.events
        self._extensions = GatewayExtensions(self.provider, features.extensions)
        self._local_prompts = self.provider.prompts.local = features.prompts or PromptBox()
        self._local_prompts.on_change(self._rebuild_prompts)
        self.provider.prompts.on_change(self._rebuild_prompts)
        self._rebuild_prompts()
        common = CallerView(self.tools, self.resources, self.prompts)
        self._caller_features = GatewayCallerFeatures(self.provider, common, self)
        if self.broker is not None:
            self.broker.on_change(self._caller_features.changed)

    @property
    def features(self) -> Features:
        """The tools, resources and prompts to publish, with the tasks and the extensions of the servers."""
        return Features(
            tools=self.tools,
            resources=self.resources,
            prompts=self.prompts,
            tasks=self._tasks,
            extensions=self._extensions,
            forwarded=ForwardedExtensions(self.provider, self._suspended_calls),
            caller_features=self._caller_features if self.broker is not None else None,
            skills=self._skills,
            events=self._events,
            lifespans=self._lifespans,
            mounted_lifespans=self._mounted_lifespans,
            middleware=self._middleware,
            spills=self._spills,
            parts=self._parts,
            notice=self._notice,
            narrowed=self._narrowed,
            start=self._start,
            pages=None if self._connecting is None else self._connecting.pages_if_needed,
        )

    def _own_auth(self, config: ServerConfig) -> httpx2.Auth | None:
        """Return the authentication of the gateway itself, which lists a server's tools for all callers."""
        found = None if self._auth is None else self._auth(config)
        return NO_AUTH if found is None and config.per_caller is not None else found

    def _caller_auths(self, config: ServerConfig) -> CallerAuths | None:
        if config.per_caller is None:
            return None
        if self.broker is None:
            from bridge.gateway.credentials.broker import CredentialBroker  # noqa: PLC0415 - only if callers have some
            from bridge.gateway.credentials.sealing import CredentialSeal  # noqa: PLC0415
            from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore  # noqa: PLC0415

            self.broker = CredentialBroker(SqliteCredentialStore(":memory:", CredentialSeal(None)))
        return self.broker.auths_of(config)

    def _narrowed(self, has: Callable[[str], bool], tools: ToolBox) -> dict[str, Any]:
        """Return what the features of some of the servers have; see `bridge.server.features.Narrowed`."""
        return {
            "tasks": self._tasks.within(tools),
            "extensions": self._extensions.within(has),
            "forwarded": ForwardedExtensions(self.provider, self._suspended_calls, has),
            "notice": partial(self._notice, has=has),
        }

    def _notice(self, access: Access, has: Callable[[str], bool] = lambda _: True) -> str | None:
        """Return which servers are not listed yet; without their names for a caller who may not see all tools."""
        notice = missing_notice(status.name for status in self.status() if not status.is_listed and has(status.name))
        is_named = notice is None or access.sees_all
        return notice if is_named else "Tools of some servers are missing until they are available."

    async def open(self) -> None:
        """Open all servers concurrently, and wait for their lists of tools.

        Raises:
            ServerError: A required server cannot be reached or listed; all servers are closed again.
        """
        try:
            if self.broker is not None:
                await self.broker.store.open()
            await self.provider.open(wait=False)
            self._deadline = anyio.current_time() + self._start_seconds
            if required := [status.name for status in self.status() if status.required]:
                await self.provider.settled(*required)
            require_listed(self.status())
            await self._wait_for_optional(math.inf if self._start is None else EARLY_SECONDS)
            if self._start is None:
                warn_of_missing(self.status())
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise

    async def _wait_for_optional(self, seconds: float = math.inf) -> None:
        with anyio.move_on_at(min(self._deadline, anyio.current_time() + seconds)):
            await self.provider.settled()

    async def settle(self) -> None:
        """Wait for the optional servers of a gateway that answers early, and end the start; see `Features.start`."""
        await self._wait_for_optional()
        warn_of_missing(self.status())
        if self._start is not None:
            self._start.end()

    async def aclose(self) -> None:
        """Close all connections, and cancel all suspended calls."""
        self._stop_waiting()
        await self.provider.aclose()
        await self._close_credentials()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_waiting()
        await self.provider.__aexit__(kind, error, traceback)
        await self._close_credentials()

    def _stop_waiting(self) -> None:
        """End what waits for answers of callers."""
        self._suspended_calls.cancel_all()
        if self._start is not None:
            self._start.end()
        if self._connecting is not None:
            self._connecting.questions.close()

    async def _close_credentials(self) -> None:
        if self.broker is not None:
            with anyio.CancelScope(shield=True):
                await self.broker.store.close()

    async def reconfigure(self, servers: Iterable[ServerConfig], *, wait: bool = True) -> None:
        """Replace the set of servers, as a whole or not at all; only changed servers are restarted.

        New ones are opened first. Calls that run on old ones go on, and those are closed after the last of them.

        Args:
            servers: See the constructor.
            wait: Wait until each new server is listed, or has failed, for the time of the start at most; otherwise only
                for required ones.

        Raises:
            ServerError: A required server cannot be reached or listed; nothing was changed.
            DefinitionError: Two servers have the same name, or each caller has a credential of its own for one, and
                this gateway was made without a broker; nothing was changed.
        """
        servers = list(servers)
        if self.broker is None and (own := [each.name for each in servers if each.per_caller is not None]):
            raise DefinitionError(
                f"the server {own[0]!r} needs a credential of each caller, and this gateway was started without any "
                "such server: start it again"
            )
        await self.provider.reconfigure(servers, wait=wait, wait_seconds=self._start_seconds)
        if self.broker is not None:
            self.broker.keep_servers({each.name for each in servers})

    async def restart(self, name: str) -> bool:
        """Close the connection to a server, and open it again; a process is started anew.

        Calls that run there fail. The gateway does not wait until the server is ready.

        Args:
            name: The server's name in the configuration.

        Returns:
            False if there is no such server.
        """
        connection = self.provider.connections.get(name)
        if connection is None:
            return False
        await connection.aclose()
        await connection.open(wait=False)
        return True

    def status(self) -> tuple[ServerStatus, ...]:
        """Return the current status of each server."""
        return self.provider.status()

    def _rebuild(self) -> None:
        remote = [tool for tool in self.provider.tools if isinstance(tool.executor, RemoteExecutor)]
        self.tools.replace([*self._local.feed, *map(self.proxied_tool, remote)])

    def proxied_tool(self, tool: Tool) -> Tool:
        """Return a tool of a server for callers; see `bridge.gateway.caller_features.Proxies`."""
        executor = tool.executor
        if isinstance(executor, ConnectExecutor):
            return replace(tool, executor=self._asking(executor, executor.server))
        if not isinstance(executor, RemoteExecutor):
            return tool
        server = self.provider.upstreams[executor.server.name]
        proxy = ProxyExecutor(executor, server, self._suspended_calls, self._tasks, self._forwards_headers)
        return replace(tool, executor=self._asking(proxy, server))

    def _rebuild_prompts(self) -> None:
        remote = map(self.proxied_prompt, self.provider.prompts)
        self.prompts.replace(merged(self.prompts, self._local_prompts.feed, remote))

    def _updated_for(self, uri: str, caller: Caller) -> None:
        """Notify a caller of new content of a resource."""
        self._caller_features.updated(uri, caller)

    def proxied_resource(self, item: Resource | ResourceTemplate) -> Resource | ResourceTemplate:
        """Return a resource of a server for callers; see `bridge.gateway.caller_features.Proxies`."""
        assert isinstance(item.reader, RemoteReader)
        server = self.provider.upstreams[item.reader.server.name]
        return replace(item, reader=self._asking(ProxyReader(item.reader, server, self._suspended_calls), server))

    def proxied_prompt(self, prompt: Prompt) -> Prompt:
        """Return a prompt of a server for callers; see `bridge.gateway.caller_features.Proxies`."""
        assert isinstance(prompt.renderer, RemoteRenderer)
        server = self.provider.upstreams[prompt.renderer.server.name]
        proxy = ProxyRenderer(prompt.renderer, server, self._suspended_calls)
        return replace(prompt, renderer=self._asking(proxy, server))

    def _asking(self, executor: _Executor, server: Upstream) -> _Executor | AskingExecutor:
        """Return an executor that asks callers for their credentials, if the server needs them."""
        return executor if self._connecting is None else self._connecting.asking(executor, server.name)


def _connecting(broker: CredentialBroker, sign_in_client: SignInClient | None) -> Connecting:
    """Return what asks callers for credentials."""
    from bridge.gateway.credentials.connecting import Connecting  # noqa: PLC0415 - only where callers have their own

    return Connecting(broker, public_url=broker.public_url, sign_in_client=sign_in_client)
