"""What every test may use."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("bridge", deadline=None)  # how long an example takes is no property of ours
settings.load_profile("bridge")


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio unless they ask for more."""
    return "asyncio"
