"""A gateway for the tests of a module, in whose credentials nothing is left by another test."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.gateway.credentials.connected import Connected, connected

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shared_gateway() -> Iterator[Connected]:
    """A gateway for the tests of a module."""
    with connected() as gateway:
        yield gateway


@pytest.fixture
def gateway(shared_gateway: Connected) -> Iterator[Connected]:
    """A gateway to which nobody has connected anything yet."""
    yield shared_gateway
    with ThreadPoolExecutor() as threads:  # tests with a browser have an event loop in their thread
        threads.submit(anyio.run, shared_gateway.forget_all).result()
