"""The serve command: its options, and the assembly of what it serves."""

from __future__ import annotations

from bridge.cli.serve.command import command

__all__ = ["command"]
