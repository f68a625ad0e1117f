"""Fixtures that start ``bridge``, as the tests of the command line have them."""

from __future__ import annotations

from tests.cli.conftest import directory, environment, home, run, start

__all__ = ["directory", "environment", "home", "run", "start"]
