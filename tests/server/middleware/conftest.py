from __future__ import annotations

import pytest

from tests.server.middleware.surrounded import LOG


@pytest.fixture(autouse=True)
def _empty() -> None:
    LOG.clear()
