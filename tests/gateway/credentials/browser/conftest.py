"""A real browser at the connect pages of a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import browsers
from tests.browsers import IGNORED, mark_tests, new_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

collect_ignore_glob = IGNORED
browser, complaints = browsers.browser, browsers.complaints


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    mark_tests(items, Path(__file__).parent)


@pytest.fixture
def page(browser: Browser, complaints: list[str]) -> Iterator[Page]:
    """A page of somebody who has no cookies yet."""
    with new_page(browser, complaints) as page:
        yield page
