"""FastMCP's search transforms; run by a Python that has FastMCP, reads JSON from its input and writes JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from time import process_time

from fastmcp.server.transforms.search import (  # type: ignore[import-not-found]  # it is installed elsewhere
    BM25SearchTransform,
    RegexSearchTransform,
)
from fastmcp.tools.base import Tool  # type: ignore[import-not-found]  # likewise


async def main() -> None:
    """Search."""
    given = json.load(sys.stdin)
    tools = [Tool(name=name, description=text, parameters=schema) for name, text, schema in given["tools"]]
    kinds = {"bm25": BM25SearchTransform, "regex": RegexSearchTransform}
    transform = kinds[given["kind"]](max_results=given["limit"])
    await transform._search(tools, "the index is built by the first search")
    begun = process_time()
    found = {query: [tool.name for tool in await transform._search(tools, query)] for query in given["queries"]}
    json.dump((found, (process_time() - begun) / len(found) * 1000), sys.stdout)


asyncio.run(main())
