"""The dashboard queries metrics that ``/metrics`` of a gateway has after a few calls."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import forks
from tests.processes import DEADLINE_SECONDS, ROOT, serving
from tests.server.http_server import call, modern, modern_headers, open_session
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = "ada-ada-ada-ada-ada-ada"
DASHBOARD = json.loads((ROOT / "examples/deploy/grafana-dashboard.json").read_text(encoding="utf-8"))
pytestmark = pytest.mark.xdist_group("dashboard")  # one server is enough for all
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
OF_PROMETHEUS = {"le", "job"}
"""Labels that Prometheus adds, and labels of buckets."""
TOOLS = """
import os

from bridge import ToolError, tool

@tool
async def leave() -> None:
    "End the process."
    os._exit(1)

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

@tool
async def fail() -> int:
    "Fail."
    raise ToolError("it does")
"""


LOCAL_TOOLS = """
from bridge import tool

@tool(task=True)
def work() -> None:
    "Work."
"""


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """Return the names of all samples, each with its labels."""
    directory = tmp_path_factory.mktemp("served")
    samples: dict[str, set[str]] = defaultdict(set)
    with serving(*served(directory)) as server, httpx.Client(timeout=DEADLINE_SECONDS) as client:
        url = server.origin + "/mcp"
        for message in (
            call("add", {"a": 1, "b": 2}),
            call("fail"),
            call("nothing"),
            call("leave"),
            call("add", {"a": 1, "b": 2}),
        ):
            enveloped = modern(message)
            client.post(url, json=enveloped, headers=modern_headers(enveloped))
        with TaskClient(server.origin) as tasks:
            tasks.settled(tasks.created("work"))
        assert client.post(url, content=b"{", headers={"content-type": "text/plain"}).status_code == 415
        client.delete(url, headers=open_session(client, url)).raise_for_status()
        answer = client.get(server.origin + "/metrics").raise_for_status()
    for family in text_string_to_metric_families(answer.text + of_a_team(directory)):
        for sample in family.samples:
            samples[sample.name] |= {name for name, value in sample.labels.items() if value}
    return samples


def of_a_team(directory: Path) -> str:
    """Return the metrics of a server whose caller has a team."""
    (directory / "keys").write_text(f"ada {KEY} team=data\n", encoding="utf-8")
    options = ("--transport", "http", "--port", "0", "--metrics", "--api-keys", str(directory / "keys"))
    with (
        serving("-m", "bridge", "serve", str(directory / "tools.py"), *options) as server,
        httpx.Client(headers={"authorization": f"Bearer {KEY}"}, timeout=DEADLINE_SECONDS) as client,
    ):
        for message in (call("add", {"a": 1, "b": 2}), call("fail")):
            enveloped = modern(message)
            client.post(f"{server.origin}/mcp", json=enveloped, headers=modern_headers(enveloped))
        return client.get(f"{server.origin}/metrics").raise_for_status().text


def served(directory: Path) -> tuple[str, ...]:
    tools, config, local = directory / "tools.py", directory / "mcp.json", directory / "local.py"
    local.write_text(LOCAL_TOOLS, encoding="utf-8")
    tools.write_text(TOOLS, encoding="utf-8")
    entry = forks.entry("-m", "bridge", "serve", str(tools), cwd=str(ROOT))
    config.write_text(json.dumps({"mcpServers": {"sums": entry}}), encoding="utf-8")
    options = ("--transport", "http", "--port", "0", "--metrics", "--audit-log", str(directory / "audit.log"))
    return "-m", "bridge", "serve", str(config), str(local), *options


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_panel_asks_for_a_metric_and_labels_that_there_are(
    exposed: Mapping[str, set[str]], expression: str
) -> None:
    asked = re.findall(r"\b((?:mcp|bridge)_[a-z_]+)\{([^}]*)\}", expression)
    assert asked
    grouped = {label for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(", ")}
    for metric, matchers in asked:
        assert metric in exposed
        labels = grouped | set(re.findall(r"([a-z_]+)(?:=|!=|=~)", matchers))
        assert labels - OF_PROMETHEUS <= exposed[metric]


def test_panels_have_names_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_dashboard_finds_its_data_by_what_is_always_there(exposed: Mapping[str, set[str]]) -> None:
    (query,) = (each["query"] for each in DASHBOARD["templating"]["list"] if each["name"] == "job")
    assert query == "label_values(bridge_calls_in_flight, job)"
    assert "bridge_calls_in_flight" in exposed
