"""What every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio unless they ask for more."""
    return "asyncio"
