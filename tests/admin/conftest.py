"""A gateway with an admin port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.admin.board import board

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.admin.board import Board


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A gateway that the tests of a module share."""
    with board(tmp_path_factory.mktemp("gateway")) as running:
        yield running
