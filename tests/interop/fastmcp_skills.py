"""FastMCP's skills: ``serve FOLDER`` or ``proxy FOLDER`` serves some, ``read URL`` prints those of a server as JSON.

A proxy is in front of a server of FastMCP in the same process. ``read`` verifies all files as FastMCP does.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client, FastMCP  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp.server import create_proxy  # type: ignore[import-not-found]  # likewise
from fastmcp.skills import SkillsClientExtension  # type: ignore[import-not-found]  # likewise
from fastmcp.skills.provider import SkillsDirectoryProvider  # type: ignore[import-not-found]  # likewise


async def read(url: str) -> dict[str, dict[str, str]]:
    async with Client(url, timeout=60, extensions=[SkillsClientExtension()]) as client:
        found = {}
        for listed in await client.list_skills():
            assert (await client.get_skill(listed.uri)).model_dump() == listed.model_dump()
            skill = await client.read_skill(listed.uri)
            found[listed.uri] = {path: content.decode() for path, content in sorted(skill.files.items())}
        return found


def served(kind: str, folder: str) -> Any:
    server: Any = FastMCP("skilled", providers=[SkillsDirectoryProvider(folder)])
    if kind == "serve":
        return server
    return create_proxy(server, skills=True)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        sys.stdout.write(json.dumps(asyncio.run(read(sys.argv[2]))))
    else:
        served(sys.argv[1], sys.argv[2]).run(show_banner=False)
