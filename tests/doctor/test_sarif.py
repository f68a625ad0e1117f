"""The members that SARIF 2.1.0 requires, and those by which code scanning finds its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.doctor.rules import RULES, examine
from bridge.doctor.sarif import as_sarif
from bridge.doctor.subject import Subject
from tests.doctor.cases import VIOLATIONS, tools
from tests.doctor.hostile import HOSTILE


def run_of(subject: Subject) -> Any:
    document = as_sarif(examine(subject), "1.2.3")
    assert document["version"] == "2.1.0"
    [run] = document["runs"]
    return run


def test_every_rule_is_described() -> None:
    driver = run_of(Subject())["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("bridge doctor", "1.2.3")
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["helpUri"].startswith("https://")
        assert rule["defaultConfiguration"]["level"] == RULES[rule["id"]].level


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_result_refers_to_its_rule_and_place(name: str) -> None:
    run = run_of(VIOLATIONS[name][0])
    assert run["results"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        [location] = result["locations"]
        [logical] = location["logicalLocations"]
        assert logical["fullyQualifiedName"].startswith("mcp.json")
        assert "physicalLocation" not in location  # there is no such file


def test_results_are_told_apart_by_fingerprints_that_stay() -> None:
    subject = tools(*(tool for specifications in HOSTILE.values() for tool in specifications))
    first, second = (
        [result["partialFingerprints"]["bridgeDoctor/v1"] for result in run_of(subject)["results"]] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) > 0.9 * len(first)


def test_a_result_names_the_file_of_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mcp.json").touch()
    [result] = run_of(VIOLATIONS["pin-stale"][0])["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "mcp.json"},
        "region": {"startLine": 1},
    }
