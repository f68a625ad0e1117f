"""The servers of servers/, as functions in this process and as real processes over each transport."""

from __future__ import annotations

import os
import re
import sys
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import pytest
from anyio.streams.text import TextReceiveStream
from mcp import Client, StdioServerParameters

from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from tests import forks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge.tools.caller import Caller

SERVERS = Path(__file__).resolve().parents[2] / "servers"
START_SECONDS = 30


@dataclass(frozen=True)
class Loaded:
    """Import a server's file."""

    module: Any
    tools: ToolBox

    async def call(
        self, name: str, /, *, memory_id: str | None = None, caller: Caller | None = None, **arguments: Any
    ) -> ToolExecutionResult:
        """Run a tool as each call is run."""
        context = InvocationContext(memory_id=memory_id, caller=caller)
        return await execute(self.tools, ToolExecutionRequest(name, arguments), context)


class Load(Protocol):
    def __call__(self, name: str, /, **environment: object) -> Loaded: ...


class Serve(Protocol):
    def __call__(self, name: str, /, **environment: object) -> AbstractAsyncContextManager[Client]: ...


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports a server with an environment of its own."""
    modules: list[Any] = []

    def load(name: str, /, **environment: object) -> Loaded:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, str(value))
        unique = f"tests_of_server_{name}_{len(modules)}"
        spec = spec_from_file_location(unique, SERVERS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, unique, module)
        spec.loader.exec_module(module)
        modules.append(module)
        return Loaded(module, ToolBox(module))

    yield load
    for module in modules:
        if (root := getattr(module, "ROOT", None)) is not None:
            root.close()
        if connection := getattr(module, "_bookings", None):
            connection.close()


@pytest.fixture(params=["stdio", "http"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Serves a server in a process of its own, and connects the official SDK's client, over each transport."""

    def serve(name: str, /, **environment: object) -> AbstractAsyncContextManager[Client]:
        command = forks.command("-m", "bridge", "serve", str(SERVERS / f"{name}.py"))
        given = {variable: str(value) for variable, value in environment.items()}
        return (_over_stdio if request.param == "stdio" else _over_http)(command, given)

    return serve


@asynccontextmanager
async def _over_stdio(command: list[str], environment: dict[str, str]) -> AsyncIterator[Client]:
    program, *arguments = command
    async with Client(StdioServerParameters(command=program, args=arguments, env=environment)) as client:
        yield client


@asynccontextmanager
async def _over_http(command: list[str], environment: dict[str, str]) -> AsyncIterator[Client]:
    process = await anyio.open_process(
        [*command, "--transport", "http", "--port", "0"],
        env=os.environ | environment,
        stdin=None,
        stdout=None,
        stderr=-1,
    )
    async with process, anyio.create_task_group() as reading:
        assert process.stderr is not None
        lines = TextReceiveStream(process.stderr)
        with anyio.fail_after(START_SECONDS):
            url = await _url(lines)
        reading.start_soon(_drain, lines)
        try:
            async with Client(url) as client:
                yield client
        finally:
            process.terminate()


async def _url(lines: TextReceiveStream) -> str:
    said = ""
    async for text in lines:
        said += text
        if found := re.search(r"serving \S+ at (\S+)\s", said):
            return found[1]
    raise AssertionError(f"the server did not start: {said}")


async def _drain(lines: TextReceiveStream) -> None:
    async for _ in lines:
        pass
