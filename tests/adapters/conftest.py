"""Fixtures of the tests of every adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail asynchronous tests at a deadline."""
    with anyio.fail_after(30):
        yield
