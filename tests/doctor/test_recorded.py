"""The rules are measured on the tools of real servers: no false error, and few warnings about instructions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.doctor.instructions import context_requested
from bridge.doctor.rules import GROUPS, RULES, examine
from bridge.doctor.subject import Definition, Subject, tool_definition
from bridge.wire.tools import tool_from_wire
from tests.doctor.cases import VIOLATIONS
from tests.doctor.hostile import HOSTILE

if TYPE_CHECKING:
    from bridge.doctor.rule import Finding

FOLDER = Path(__file__).with_name("recorded")
SERVERS = sorted(path.stem for path in FOLDER.glob("*.json"))
TEXT_RULES = [rule for group, rules in GROUPS.items() if group.startswith(("Instr", "Hidden")) for rule in rules]
TRUE_ERRORS = {
    ("azure", "annotation-contradicts-name", "communication_email_send"),  # it sends mails, and is marked as read-only
    ("azure", "annotation-contradicts-name", "communication_sms_send"),
}
TRUE_WARNINGS = {
    ("azure", "instruction-order", "applens_resource_diagnose"),  # "Always use this tool before manually checking"
    ("azure", "secret-file-named", "deploy_app_logs_get"),  # the folder .azure
    ("context7", "instruction-order", "resolve-library-id"),  # "You MUST call this function before"
}


def tools_of(server: str) -> tuple[Definition, ...]:
    listed = json.loads((FOLDER / f"{server}.json").read_text(encoding="utf-8"))["tools"]
    return tuple(tool_definition(tool_from_wire(tool), "mcp.json", server=server) for tool in listed)


def found(level: str, *servers: str) -> set[tuple[str, str, str]]:
    findings: list[tuple[str, Finding]] = [
        (server, finding)
        for server in servers
        for finding in examine(Subject(definitions=tools_of(server)), None if level == "error" else TEXT_RULES)
    ]
    return {
        (server, finding.rule.name, finding.problem.item.name)
        for server, finding in findings
        if finding.rule.level == level
    }


def test_many_servers_are_recorded() -> None:
    assert len(SERVERS) > 30
    assert sum(len(tools_of(server)) for server in SERVERS) > 700


@pytest.mark.parametrize("server", SERVERS)
def test_a_real_server_has_no_false_error(server: str) -> None:
    assert found("error", server) == {each for each in TRUE_ERRORS if each[0] == server}


def test_real_servers_have_few_warnings_about_instructions() -> None:
    assert found("warning", *SERVERS) == TRUE_WARNINGS


def test_no_real_server_names_tools_of_another_by_its_own_names() -> None:
    subject = Subject(definitions=tuple(each for server in SERVERS for each in tools_of(server)))
    assert examine(subject, [RULES["other-server-named"]]) == []


def test_all_known_faults_are_found_among_the_tools_of_real_servers() -> None:
    real = tuple(each for server in SERVERS[:5] for each in tools_of(server))
    count = 0
    for rule, faults in HOSTILE.items():
        for fault in faults:
            subject = Subject(definitions=(*real, tool_definition(fault, "mcp.json", server="fault")))
            names = {finding.problem.item.name for finding in examine(subject, [RULES[rule]])}
            assert fault.name in names, (rule, fault.name)
            count += 1
    assert count >= 58
    assert context_requested.name in VIOLATIONS
