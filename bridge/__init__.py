"""Python functions as tools, published over the Model Context Protocol, and tools of MCP servers in Python.

    from bridge import tool

    @tool
    def add(a: int, b: int) -> int:
        \"\"\"Add two numbers.\"\"\"
        return a + b

The names are listed in `bridge.exports`, and imported on first use (PEP 562).
"""

from __future__ import annotations

from bridge.exports import home_of, lazy_exports

__all__, _get, _names = lazy_exports(__name__)


def __getattr__(name: str) -> object:
    """Import a public name on first access.

    Raises:
        ImportError: The name is in another documented module, which the message names.
        AttributeError: There is no such name.
    """
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - it takes a while, and few programs need it

        value = globals()[name] = version("mcp-toolbridge")
        return value
    if name not in __all__ and (home := home_of(name)) is not None:
        # `from bridge import …` would replace the message of an AttributeError.
        raise ImportError(f"{name!r} is not in 'bridge': write from {home} import {name}", name=name)
    return _get(name)


def __dir__() -> list[str]:
    return sorted({*_names(), "__version__"})
