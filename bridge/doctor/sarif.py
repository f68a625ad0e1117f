"""Report in the Static Analysis Results Interchange Format (SARIF 2.1.0, OASIS), for code scanning."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from bridge.doctor.rule import REPOSITORY
from bridge.doctor.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.doctor.rule import Finding, Rule
    from bridge.types import Json

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
"""JSON Schema that the report names."""
_FINGERPRINT = "bridgeDoctor/v1"


def as_sarif(findings: Sequence[Finding], version: str) -> Json:
    """One run with all rules, and a result for each finding; ``version`` is that of bridge."""
    positions = {name: index for index, name in enumerate(RULES)}
    driver = {
        "name": "bridge doctor",
        "semanticVersion": version,
        "informationUri": REPOSITORY,
        "rules": [_rule(rule) for rule in RULES.values()],
    }
    results = [_result(finding, positions[finding.rule.name]) for finding in findings]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _rule(rule: Rule) -> Json:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.explanation or rule.summary},
        "helpUri": rule.url,
        "help": {"text": f"{rule.summary} {rule.url}", "markdown": f"{rule.summary} [Explanation]({rule.url})"},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(finding: Finding, index: int) -> Json:
    problem, item = finding.problem, finding.problem.item
    place = f", {problem.where}" if problem.where else ""
    name = f"{item.source}#{item.name}" if item.kind != "target" else item.source
    location: Json = {"logicalLocations": [{"name": item.name, "fullyQualifiedName": name, "kind": item.kind}]}
    if (uri := _artifact(item.source)) is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}
    identity = f"{finding.rule.name}\0{item.kind}\0{name}\0{problem.where}"
    return {
        "ruleId": finding.rule.name,
        "ruleIndex": index,
        "level": finding.rule.level,
        "message": {"text": f"{item}{place}: {problem.message}. Remedy: {problem.remedy}."},
        "locations": [location],
        "partialFingerprints": {_FINGERPRINT: sha256(identity.encode(errors="surrogatepass")).hexdigest()},
    }


def _artifact(source: str) -> str | None:
    """URI of the file or server that a target names; None for a module or a command."""
    if source.startswith(("http://", "https://")):
        return source
    for path in (Path(source), Path(source.partition("#")[0]), Path(source.rpartition(":")[0] or source)):
        if path.exists():
            return path.resolve().as_uri() if path.is_absolute() or ".." in path.parts else quote(path.as_posix())
    return None
