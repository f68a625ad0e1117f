from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real server on a free port."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server
