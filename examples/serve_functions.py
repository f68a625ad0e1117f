"""Serving functions: the shortest way from Python to an MCP server.

Serve this very file to an assistant, over stdio or over HTTP:

    bridge serve examples/serve_functions.py
    bridge serve examples/serve_functions.py --transport http

Or run it with Python, and it starts itself as a server and calls it with the official SDK's client:

    python examples/serve_functions.py
"""

import sys
from typing import Annotated

import anyio
from mcp import Client, StdioServerParameters

from bridge import P, ToolAnnotations, ToolError, tool

CITIES = {"london": 8.9, "madrid": 3.4, "paris": 2.1}


# A decorated function is a tool. Its name, its docstring and its annotations are all that a model will know of it, so
# they are worth some care. The function itself stays as it was: call it, test it, import it.
@tool
def population(city: Annotated[str, P("The city's name in English, such as 'Paris'")]) -> float:
    """Returns how many million people live in a city."""
    try:
        return CITIES[city.strip().lower()]
    except KeyError:
        # A ToolError is for the model: it reads the message, and can try again. The text of any other exception
        # stays in the server's log.
        raise ToolError(f"nothing is known of {city!r}; the cities are {', '.join(sorted(CITIES))}") from None


# What the docstring and the annotations cannot say goes into the decorator. Coroutine functions are tools too, and the
# docstring may describe the parameters instead.
@tool(title="Known cities", annotations=ToolAnnotations(read_only=True))
async def cities(at_least_million: float = 0) -> list[str]:
    """Lists the cities that are known.

    Args:
        at_least_million: Only cities of at least so many million people.
    """
    return [city for city, million in sorted(CITIES.items()) if million >= at_least_million]


async def main() -> None:
    """Start this file as a server, and talk to it."""
    this_server = StdioServerParameters(command=sys.executable, args=["-m", "bridge", "serve", __file__])
    async with Client(this_server) as client:
        for offered in (await client.list_tools()).tools:
            print(f"{offered.name}: {offered.description}")
            print(f"    takes {offered.input_schema['properties']}")

        answer = await client.call_tool("cities", {"at_least_million": 3})
        print("cities of three million:", answer.structured_content)
        assert answer.structured_content == {"result": ["london", "madrid"]}

        # Models often write numbers as text. What can only be meant one way is understood.
        answer = await client.call_tool("cities", {"at_least_million": "3.5"})
        assert answer.structured_content == {"result": ["london"]}

        answer = await client.call_tool("population", {"city": "Atlantis"})
        print("a ToolError is answered as", answer.content[0].model_dump(include={"text"}))
        assert answer.is_error


if __name__ == "__main__":
    anyio.run(main)
