"""Fixtures that start ``bridge``, shared with the tests of the command line."""

from __future__ import annotations

from tests.cli.conftest import directory, environment, home, run, start

__all__ = ["directory", "environment", "home", "run", "start"]
