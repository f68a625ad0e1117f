"""The image, built from the Dockerfile, and run read-only and without privileges."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.image.conftest import first_process
from tests.image.dockerfile import ROOT, stages
from tests.processes import ServerProcess

if TYPE_CHECKING:
    from tests.image.conftest import Image

pytestmark = pytest.mark.xdist_group("image")

DEADLINE_SECONDS = 60
NO_AUTH = {"BRIDGE_NO_AUTH": "1", "BRIDGE_PORT": "0"}
KEY = "a-key-of-these-tests-of-some-length"
WITH_KEY = {"BRIDGE_API_KEY": KEY, "BRIDGE_PORT": "0"}
TOOLS = """
    import os
    import subprocess

    from bridge import tool


    @tool
    def who() -> list[int]:
        '''Who runs this.'''
        return [os.getuid(), os.getgid()]


    @tool
    def write(path: str) -> str:
        '''Try to write a file.'''
        try:
            open(path, "w")
        except OSError as error:
            return type(error).__name__ + str(error.errno)
        return "written"


    @tool
    def orphan() -> int:
        '''Leave a process behind, whose parent is gone.'''
        script = "sleep 1000 >/dev/null 2>&1 & echo $!"
        return int(subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout)


    @tool
    def kill(pid: int) -> str:
        '''Kill a process that is not ours to wait for, and say when it is wholly gone.'''
        os.kill(pid, 9)
        while os.path.exists(f"/proc/{pid}"):
            os.sched_yield()
        return "reaped"
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with a file of tools that everybody may read."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "about.py").write_text(dedent(TOOLS), encoding="utf-8")
    for path in [folder / "about.py", folder]:
        path.chmod(0o755)
    return folder


def call(origin: str, name: str, key: str | None = None, **arguments: Any) -> Any:
    """Return the structured result of a call in the modern era."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    answer = httpx.post(
        f"{origin}/mcp",
        headers={
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        | ({} if key is None else {"Authorization": f"Bearer {key}"}),
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": name, "arguments": arguments, "_meta": meta},
        },
        timeout=DEADLINE_SECONDS,
    )
    answer.raise_for_status()
    result = answer.json()["result"]
    return result["structuredContent"]["result"] if "structuredContent" in result else result["content"][0]["text"]


def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "hadolint"), str(ROOT / "Dockerfile")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_image_says_how_it_is_run_and_what_is_in_it() -> None:
    stage = stages()[-1]
    assert (stage.command("ENTRYPOINT"), stage.command("CMD")) == (["bridge"], ["serve"])
    environment = stage.environment
    served = (environment["BRIDGE_TRANSPORT"], environment["BRIDGE_HOST"], environment["BRIDGE_PORT"])
    assert served == ("http", "0.0.0.0", stage.last("EXPOSE")) == ("http", "0.0.0.0", "8000")
    assert all(part.isdecimal() and int(part) for part in stage.last("USER").split(":"))
    assert stage.last("STOPSIGNAL") == "SIGTERM"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    labels = dict(word.split("=", 1) for word in shlex.split(stage.last("LABEL")))
    assert {"title", "description", "licenses"} <= {name.rpartition(".")[2] for name in labels}
    assert labels["org.opencontainers.image.version"] == version
    program, _ = stage.command("HEALTHCHECK")
    assert program.endswith("/python")


def test_the_last_stage_is_a_slim_base_to_which_nothing_is_installed() -> None:
    build, last = stages()
    assert build.base == last.base == "python:${PYTHON}"
    assert re.search(r"^ARG PYTHON=[\d.]+-slim$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert [value for kind, value in last.instructions if kind == "COPY"] == ["--from=build /opt/bridge /opt/bridge"]
    assert not [value for kind, value in last.instructions if kind == "RUN" and re.search(r"\b(apt|install)\b", value)]


def test_python_tools_are_served_from_their_directory(image: Image, tools: Path) -> None:
    with image.container(environment=WITH_KEY, volumes={"/app/tools": tools}) as container:
        server = ServerProcess(container)
        assert server.origin.startswith("http://0.0.0.0:")
        origin = loopback(server)
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            call(origin, "who")
        assert call(origin, "who", KEY) == [10001, 10001]
        for path in ("/opt/bridge/written", "/app/written", "/etc/written"):
            assert call(origin, "write", KEY, path=path) == "OSError30"
        assert call(origin, "write", KEY, path="/tmp/written") == "written"
        assert call(origin, "kill", KEY, pid=call(origin, "orphan", KEY)) == "reaped"
        assert health(image, origin) == 0
        end(container)
        assert "Traceback" not in server.log
    assert health(image, origin) == 1


def loopback(server: ServerProcess) -> str:
    """Serve on all addresses; yields the URL on this machine."""
    return server.origin.replace("0.0.0.0", "127.0.0.1")


def end(container: subprocess.Popen[str]) -> None:
    """Stop a container as an engine does."""
    os.kill(first_process(container), signal.SIGTERM)
    assert container.wait(DEADLINE_SECONDS) == 0


def health(image: Image, origin: str) -> int:
    """Return the exit code of the image's health check, in a container that shares the server's network."""
    _, script = stages()[-1].command("HEALTHCHECK")
    with image.container(
        environment={"BRIDGE_PORT": origin.rpartition(":")[2], "PYTHONSTARTUP": ""},
        entrypoint=["/opt/bridge/bin/python", script],
    ) as checking:
        return checking.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize("port", ["abc", "70000", "1"])
def test_a_server_that_is_not_alive_is_one_line_and_code_1(port: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / ".docker" / "healthcheck.py")],
        env={"BRIDGE_PORT": port},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"the server at port '{port}' is not alive: ")


def test_a_configuration_is_served_where_it_is_mounted(image: Image, tools: Path, tmp_path: Path) -> None:
    folder = tmp_path / "configuration"
    folder.mkdir()
    entry = {"command": "bridge", "args": ["serve", "/etc/bridge/about.py", "--transport", "stdio"]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"about": entry}}), encoding="utf-8")
    folder.chmod(0o755)
    (folder / "mcp.json").chmod(0o644)
    (tools / "about.py").rename(folder / "about.py")
    with image.container(environment=NO_AUTH, volumes={"/etc/bridge": folder}) as container:
        server = ServerProcess(container)
        assert call(loopback(server), "who") == [10001, 10001]
        end(container)
        assert "Traceback" not in server.log


def test_nobody_is_served_without_a_key_or_a_word_that_this_is_meant(image: Image, tools: Path) -> None:
    with image.container(volumes={"/app/tools": tools}) as container:
        _, said = container.communicate(timeout=DEADLINE_SECONDS)
        assert container.returncode == 2
        assert "can be reached from other machines" in " ".join(said.split())


def test_where_nothing_is_mounted_it_is_said_what_to_mount(image: Image) -> None:
    with image.container(environment=NO_AUTH) as container:
        _, said = container.communicate(timeout=DEADLINE_SECONDS)
        assert container.returncode == 2
        assert "there is no /app/tools and no /etc/bridge/mcp.json" in " ".join(said.split())


@pytest.mark.parametrize("interpreter", ["/opt/bridge/bin/python", f"{sys.base_prefix}/bin/python3"])
@pytest.mark.parametrize("module", ["pip", "ensurepip"])
def test_there_is_no_pip_in_it(image: Image, interpreter: str, module: str) -> None:
    with image.container(entrypoint=[interpreter, "-c", f"import {module}"]) as container:
        _, said = container.communicate(timeout=DEADLINE_SECONDS)
        assert f"No module named '{module}'" in said
