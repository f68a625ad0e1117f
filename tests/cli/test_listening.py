from __future__ import annotations

import socket

import pytest

from bridge.cli import listening


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
    assert listening.are_loopback(addresses) is is_loopback
