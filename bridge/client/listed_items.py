"""Items of a server's lists as local ones: those that are malformed or listed twice are left out."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio.lowlevel

from bridge.client.callers import CallerListing
from bridge.client.connection.list_methods import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from bridge.client.remote_feature import RemoteServer, remote_prompt, remote_resource
from bridge.client.remote_tool import ToolServer, remote_tool
from bridge.client.selection import ResourceSelection
from bridge.errors import DefinitionError, ServerError, WireError
from bridge.resources.box import ResourceBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.list_methods import Listed, ListMethod
    from bridge.client.uris import UriNames
    from bridge.prompts.prompt import Prompt
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.types import Json

T = TypeVar("T")

_ITEMS_AT_ONCE = 50
"""Items that are created before control returns to the event loop."""
_MAX_PAGES = 1_000
_logger = logging.getLogger("bridge.client")


class ListingServer(ToolServer, RemoteServer, Protocol):
    """Server of all listed items."""


class ListedItems:
    """Makes the items of a server's lists.

    Each method returns the items, and those left out or refused by pins, each with the reason.

    Args:
        server: The server.
        config: Its configuration.
        uris: The local URIs of resources.
        validates_results: Validate structured content against output schemas.
    """

    def __init__(self, server: ListingServer, config: ServerConfig, uris: UriNames, *, validates_results: bool) -> None:
        self._server = server
        self._config = config
        self._uris = uris
        self._make_prompt = partial(remote_prompt, server=server, uris=uris)
        self._make_tool = partial(
            remote_tool,
            server=server,
            trusted=config.trusted,
            validates_results=validates_results,
            refuses_unjudged=config.unjudged_results == "refuse",
            uris=uris,
            spill_chars=config.spill_chars,
            always_visible=config.always_visible,
        )

    async def tools(self, listed: Listed) -> tuple[list[Tool], tuple[str, ...]]:
        """Make the tools."""
        return await made_items(self._server.name, self._make_tool, attrgetter("name"), (TOOLS, listed))

    async def resources(
        self, listed: Listed, templates: Listed, selection: ResourceSelection | None = None
    ) -> tuple[list[Resource | ResourceTemplate], tuple[str, ...]]:
        """Make the resources and templates; those of one caller's list with their selection."""
        make = partial(remote_resource, server=self._server, uris=self._uris, selection=selection)
        lists = (RESOURCES, listed), (TEMPLATES, templates)
        return await made_items(self._server.name, make, ResourceBox().key_of, *lists)

    async def prompts(self, listed: Listed) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
        """Make the prompts that the configuration admits."""
        prompts, skipped = await made_items(self._server.name, self._make_prompt, attrgetter("name"), (PROMPTS, listed))
        return tuple(prompt for prompt in prompts if self._config.admits_prompt(prompt.name)), skipped

    async def made(self, digest: bytes, lists: Mapping[ListMethod, Listed]) -> CallerListing:
        """Make what is listed for a caller; see `bridge.client.callers.CallerFactory`."""
        tools, _ = await self.tools(lists[TOOLS])
        selection, listed, templates = ResourceSelection(self._config), lists[RESOURCES], lists[TEMPLATES]
        resources, _ = await self.resources(listed, templates, selection)
        prompts, _ = await self.prompts(lists[PROMPTS])
        return CallerListing(
            digest=digest,
            tools=tuple(tools),
            resources=tuple(selection.update(resources, listed.refused, templates.refused)),
            prompts=prompts,
        )


async def made_items(
    server: str, make: Callable[[Json], T], key_of: Callable[[T], str], *lists: tuple[ListMethod, Listed]
) -> tuple[list[T], tuple[str, ...]]:
    """Create the items of one feature in batches, so that other tasks can run; those left out are logged.

    Args:
        server: Name of the server.
        make: Creates an item.
        key_of: Returns the key of an item, which is unique.
        lists: The lists.

    Returns:
        The items, and those left out or refused by pins, each with the reason.
    """
    items: dict[str, T] = {}
    refused = [reason for _, listed in lists for reason in listed.refused.values()]
    skipped = [reason for _, listed in lists for reason in listed.malformed]
    everything = ((method.noun, wire) for method, listed in lists for wire in listed.items)
    for number, (noun, wire) in enumerate(everything):
        if number % _ITEMS_AT_ONCE == 0:
            await anyio.lowlevel.checkpoint()
        try:
            item = make(wire)
        except (WireError, DefinitionError) as error:
            skipped.append(str(error))
            continue
        if (key := key_of(item)) in items:
            skipped.append(f"the {noun} {key!r} is listed twice")
        else:
            items[key] = item
    for reason in skipped:
        _logger.warning("server %r: left out: %s", server, reason)
    return list(items.values()), (*refused, *skipped)


async def all_entries(
    server: RemoteServer, method: ListMethod, context: InvocationContext, *, max_entries: int
) -> list[Json]:
    """List the entries of an extension, over all pages up to a maximum, for the caller of a request.

    Raises:
        ServerError: The server cannot be reached, or they cannot be listed.
    """
    entries: list[Json] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await server.request(method.method, {} if cursor is None else {"cursor": cursor}, context=context)
        entries += page[method.member]
        if (following := page.get("nextCursor")) is None or following == cursor or len(entries) > max_entries:
            break
        cursor = following
    return entries[:max_entries]


def require_server(upstreams: Mapping[str, T], name: str | None) -> Mapping[str, T]:
    """Return servers, after a check that one of them has a name, if one is given.

    Raises:
        DefinitionError: None has it.
    """
    if name is not None and name not in upstreams:
        raise DefinitionError(f"there is no server {name!r}; servers: {', '.join(upstreams) or 'none'}")
    return upstreams


@contextmanager
def logged_unless_only(name: str, upstreams: Mapping[str, object], wanted: str | None, what: str) -> Iterator[None]:
    """Context in which one of several servers is listed, whose error is logged unless that server alone is wanted."""
    try:
        yield
    except ServerError as error:
        if len(upstreams) == 1 or wanted == name:
            raise
        _logger.warning("the %s of the server %r cannot be listed: %s", what, name, error)
