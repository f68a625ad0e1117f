"""A tool behaves the same through a gateway as without one, over every route and in both eras on either side.

The tests are those of a served tool (`tests.interop.test_official_client`), run once for each pair of routes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from tests.interop import test_official_client as direct
from tests.interop.counterpart import DEADLINE_SECONDS

if TYPE_CHECKING:
    from tests.interop.counterpart import Counterpart, Route

pytestmark = direct.pytestmark

_OWN = {
    "test_a_list_in_pages_has_every_tool_once",  # pages of a server's list are not those of the gateway's
    "test_a_change_of_the_list_reaches_the_client",  # below: it takes two steps here
    "test_a_call_that_the_client_gives_up_ends_at_the_server",  # below: the last
}

globals().update({name: test for name, test in vars(direct).items() if name.startswith("test_") and name not in _OWN})


async def change(counterpart: Counterpart) -> bool:
    """Add or remove a tool of the server; return True if it is there now."""
    result = await direct.call(counterpart, "change_the_list")
    assert result.structured_content is not None
    return bool(result.structured_content["result"])


async def is_listed(counterpart: Counterpart) -> bool:
    listed = await counterpart.client.list_tools(cache_mode="refresh")
    return "guest" in [tool.name for tool in listed.tools]


async def change_and_hear_of_it(counterpart: Counterpart, route: Route) -> bool:
    """The same, after the client was notified and the gateway lists the server's tools."""
    with anyio.fail_after(DEADLINE_SECONDS):
        if route.is_modern:
            async with counterpart.client.listen(tools_list_changed=True) as changes:
                is_here = await change(counterpart)
                while await is_listed(counterpart) is not is_here:
                    await anext(changes)
                return is_here
        is_here = await change(counterpart)
        while await is_listed(counterpart) is not is_here:
            await counterpart.list_changed.wait()
            counterpart.list_changed = anyio.Event()
        return is_here


async def test_a_change_of_the_servers_list_reaches_the_client(counterpart: Counterpart, route: Route) -> None:
    before = await change_and_hear_of_it(counterpart, route)
    assert await change_and_hear_of_it(counterpart, route) is not before


async def test_a_tool_that_came_later_can_be_called(counterpart: Counterpart, route: Route) -> None:
    while not await change_and_hear_of_it(counterpart, route):
        pass
    assert direct.text_of(await direct.call(counterpart, "guest")) == "here"


async def test_a_call_that_the_client_gives_up_ends_at_the_server(counterpart: Counterpart) -> None:
    """The last test of each route: for some seconds after it, no caller is asked, as it might be the wrong one."""
    await direct.test_a_call_that_the_client_gives_up_ends_at_the_server(counterpart)
