"""The tools of the lab, as `bridge serve` takes them."""

from __future__ import annotations

from bridge import ToolBox
from tests.benchmarks.lab.shop import TOOLS

SHOP = ToolBox(TOOLS)
