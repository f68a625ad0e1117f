"""Fixtures of the tests of credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.auth.issuer import issuing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.auth.issuer import Issuer


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """A real issuer of tokens."""
    with issuing() as started:
        yield started
