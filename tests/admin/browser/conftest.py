"""A real browser at the page of the administration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import browsers
from tests.admin.board import board
from tests.browsers import IGNORED, mark_tests, new_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.admin.board import Board

collect_ignore_glob = IGNORED
browser, complaints = browsers.browser, browsers.complaints


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    mark_tests(items, Path(__file__).parent)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A gateway that the tests of a module share."""
    profiles = {"default": {}, "some": {"include": ["tools_add"]}}
    with board(tmp_path_factory.mktemp("gateway"), profiles=profiles) as running:
        yield running


@pytest.fixture
def page(browser: Browser, complaints: list[str], gateway: Board) -> Iterator[Page]:
    """The page, before the key is given."""
    with new_page(browser, complaints, viewport={"width": 1300, "height": 900}) as page:
        page.goto(f"{gateway.admin_origin}/admin/")
        yield page
