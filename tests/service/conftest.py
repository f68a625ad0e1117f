from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run services on both event loops."""
    backend: str = request.param
    return backend


@pytest.fixture(params=["whole", "streamed"])
def way(request: pytest.FixtureRequest) -> str:
    """Run each test with whole and with streamed replies of the model: both use one loop."""
    way: str = request.param
    return way


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server on a free port."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Each store of conversations."""
    return tmp_path / "conversations.db"
