from __future__ import annotations

import gc

from bridge.server.methods.logging import LogLevels


class Client:
    """A stand-in for a client."""


def test_a_client_hears_all_until_it_says_otherwise() -> None:
    levels, client, other = LogLevels(), Client(), Client()
    assert levels.of(client) == "debug"
    levels.keep(client, "error")
    levels.keep(client, "warning")
    assert (levels.of(client), levels.of(other), levels.of(None)) == ("warning", "debug", "debug")


def test_of_a_client_that_has_gone_nothing_is_kept() -> None:
    levels, client = LogLevels(), Client()
    levels.keep(client, "error")
    del client
    gc.collect()
    assert len(levels) == 0
