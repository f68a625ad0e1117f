from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from bridge.server import http_app
from bridge.server.server import Server
from tests.redis_server import redis_server
from tests.server.cluster.speaking import Replicas
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_server import RedisServer


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real server on a free port."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def replicas(redis: RedisServer, serving: Callable[..., str]) -> Replicas:
    """Two servers of one name and one Redis."""
    name = f"tools-{uuid4().hex}"
    return Replicas(*(f"{serving(http_app(Server(TOOLS, name=name), redis_url=redis.url))}/mcp" for _ in range(2)))
