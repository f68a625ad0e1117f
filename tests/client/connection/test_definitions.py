"""Definitions that are kept in a file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.client.connection.definitions import KeptDefinitions
from bridge.client.connection.list_methods import LIST_METHODS, Listed

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_folder_that_cannot_be_written_is_logged_once_and_again_after_it_could(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "definitions"
    folder.touch()
    path = folder / "lists" / "server.json"
    line = f"the definitions of a server cannot be kept in {path}: File exists"
    caplog.set_level(logging.WARNING, "bridge.client")
    kept = KeptDefinitions(tmp_path / "none.json")
    kept._path = path
    for method in LIST_METHODS:
        kept.keep(method, Listed([], None, ()), None)
    assert caplog.messages == [line]
    folder.unlink()
    kept.keep(LIST_METHODS[0], Listed([{"name": "a"}], None, ()), None)
    assert KeptDefinitions(path).listed(LIST_METHODS[0]) == Listed([{"name": "a"}], None, ())
    path.unlink()
    path.parent.rmdir()
    folder.rmdir()
    folder.touch()
    kept.keep(LIST_METHODS[0], Listed([], None, ()), None)
    assert caplog.messages == [line] * 2
