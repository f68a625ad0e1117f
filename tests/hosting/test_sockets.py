from __future__ import annotations

import asyncio
import os
import socket

import pytest

from bridge.hosting import child_process, sockets

DEADLINE_SECONDS = 60


@pytest.mark.parametrize(
    ("hosts", "is_loopback"),
    [
        (["127.0.0.1"], True),
        (["127.9.8.7", "::1"], True),
        (["::1%1"], True),
        (["127.0.0.1", "192.0.2.1"], False),
        (["192.0.2.1", "127.0.0.1"], False),
        (["0.0.0.0"], False),
        (["::"], False),
    ],
)
def test_a_host_is_this_machines_alone_where_each_of_its_addresses_is(hosts: list[str], *, is_loopback: bool) -> None:
    addresses = [(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, 8000)) for host in hosts]
    assert sockets.are_loopback(addresses) is is_loopback


async def delays_of_connections(listener: socket.socket) -> bool:
    """Return True if asyncio's own loop leaves Nagle's algorithm on for connections of a socket."""
    found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        found.set_result(not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with asyncio.timeout(DEADLINE_SECONDS), await asyncio.start_server(connected, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        writer.close()
        return await found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("is_handed_down", [False, True])
def test_what_is_written_to_a_connection_goes_at_once(host: str, *, is_handed_down: bool) -> None:
    (bound,) = sockets.bind(sockets.resolve(host, 0))
    with bound:
        if is_handed_down:
            # As in a child process, which gets only the number of a descriptor.
            with child_process._opened(os.dup(bound.fileno())) as given:
                assert not asyncio.run(delays_of_connections(given))
        else:
            assert not asyncio.run(delays_of_connections(bound))
