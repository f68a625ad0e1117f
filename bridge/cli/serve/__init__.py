"""``bridge serve``: options and assembly of the server."""

from __future__ import annotations

from bridge.cli.serve.command import command

__all__ = ["command"]
