from __future__ import annotations

from bridge.client import HttpTransport, ServerConfig
from bridge.gateway import merged_servers


def server(name: str, port: int) -> ServerConfig:
    return ServerConfig(name=name, transport=HttpTransport(f"http://127.0.0.1:{port}/mcp"))


def test_servers_of_several_sources_stand_together_in_their_order() -> None:
    one, two, three = server("one", 1), server("two", 2), server("three", 3)
    assert merged_servers([("work", [one, two]), ("home", [three])]) == [one, two, three]


def test_a_server_that_two_sources_describe_alike_is_one() -> None:
    assert merged_servers([("work", [server("one", 1)]), ("home", [server("one", 1)])]) == [server("one", 1)]


def test_of_different_servers_with_one_name_the_first_keeps_it() -> None:
    groups = [("work", [server("one", 1)]), ("home", [server("one", 2)]), ("home", [server("one", 3)])]
    assert merged_servers(groups) == [server("one", 1), server("home-one", 2), server("home-one-2", 3)]


def test_a_renamed_server_that_comes_again_is_one() -> None:
    groups = [("work", [server("one", 1)]), ("home", [server("one", 2)]), ("home", [server("one", 2)])]
    assert merged_servers(groups) == [server("one", 1), server("home-one", 2)]
