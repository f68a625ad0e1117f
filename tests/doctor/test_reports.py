from __future__ import annotations

from dataclasses import replace

from bridge import ToolAnnotations
from bridge.doctor.reports import as_json, as_text
from bridge.doctor.rule import PAGE
from bridge.doctor.rules import RULES, examine
from bridge.doctor.subject import Subject
from tests.doctor.cases import VIOLATIONS, taking, tools
from tests.doctor.hostile import described

DELETE = described("delete_file", "Deletes\na file.", annotations=ToolAnnotations(read_only=True))
SUBJECT = tools(DELETE)


def test_a_finding_is_shown_with_its_remedy_and_page() -> None:
    assert as_text(examine(SUBJECT), SUBJECT, shows_notes=False).splitlines() == [
        "error: tool 'delete_file', annotations.readOnlyHint: it is marked as read-only, but its name says 'delete'",
        "  remove readOnlyHint, or rename the tool",
        f"  annotation-contradicts-name: {PAGE}#annotation-contradicts-name",
        "",
        "1 error in 1 tool; the definitions of the tools cost about 32 tokens",
    ]


def test_details_follow_their_finding() -> None:
    [subject] = VIOLATIONS["pin-stale"]
    assert as_text(examine(subject), subject, shows_notes=False).splitlines() == [
        "error: server 'one': the tool 'add' has changed: description",
        "  review the change, and run bridge pin",
        f"  pin-stale: {PAGE}#pin-stale",
        "    -a",
        "    +b",
        "",
        "1 error",
    ]


def test_notes_are_only_counted_unless_they_are_wanted() -> None:
    subject = tools(taking({"properties": {"a": {"type": "string"}}}))
    findings = examine(subject)
    assert as_text(findings, subject, shows_notes=False).startswith(
        "no errors or warnings, 1 note (--notes shows them) in 1 tool;"
    )
    shown = as_text(findings, subject, shows_notes=True)
    assert shown.startswith("note: tool 'look_up', inputSchema.properties: no description of 'a'\n")
    assert "no errors or warnings, 1 note in 1 tool;" in shown


def test_nothing_found_is_said() -> None:
    assert as_text([], Subject(), shows_notes=False) == "no findings"


def test_a_foreign_text_stays_on_its_line() -> None:
    subject = tools(described("a\nerror: tool 'b'", ""))
    lines = as_text(examine(subject, [RULES["description-missing"]]), subject, shows_notes=False).splitlines()
    assert lines[0] == "warning: tool \"a\\nerror: tool 'b'\", description: it has no description"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    subject = tools(taking({"properties": {"\x9b\u202e": {"type": "string", "description": "a\x1b[8m"}}}))
    text = as_text(examine(subject), subject, shows_notes=True)
    assert r"inputSchema.properties.\x9b\u202e.description" in text
    assert text.replace("\n", "").isprintable()


def test_json_has_tokens_and_each_providers_definition() -> None:
    tool = described(
        "notes.read",
        "Reads a note.",
        parameters={"type": "object", "properties": {"id": {"type": ["integer", "null"]}}, "not": {"required": ["x"]}},
    )
    subject = tools(tool)
    [written] = as_json([], subject)["tools"]
    providers = written.pop("providers")
    assert written == {"name": "notes.read", "target": "mcp.json", "tokens": 47}
    assert {name: form["name"] for name, form in providers.items()} == {
        "OpenAI": "notes_read",
        "Anthropic": "notes_read",
        "Bedrock": "notes_read",
        "Gemini": "notes.read",
    }
    assert providers["OpenAI"]["losses"] == ["'not' at the root"]
    assert providers["OpenAI"]["strict"] == {"schema": None, "reason": "strictness: it uses 'not'"}
    assert providers["Gemini"]["schema"]["properties"] == {"id": {"type": "integer", "nullable": True}}
    assert "strict" not in providers["Gemini"]


def test_json_has_every_finding_with_its_object() -> None:
    assert as_json(examine(SUBJECT), SUBJECT)["findings"] == [
        {
            "rule": "annotation-contradicts-name",
            "level": "error",
            "kind": "tool",
            "name": "delete_file",
            "target": "mcp.json",
            "message": "it is marked as read-only, but its name says 'delete'",
            "remedy": "remove readOnlyHint, or rename the tool",
            "url": f"{PAGE}#annotation-contradicts-name",
            "where": "annotations.readOnlyHint",
        }
    ]


def test_several_servers_are_shown_with_what_each_costs() -> None:
    one, two = tools(described("a", "A.")), tools(described("b", "B. " * 40))
    definitions = [
        replace(definition, server=server)
        for server, subject in (("one", one), ("two", two))
        for definition in subject.definitions
    ]
    subject = Subject(targets=one.targets, definitions=tuple(definitions))
    costs = [specification.estimated_tokens for _, specification in subject.tools]
    text = as_text([], subject, shows_notes=False)
    assert text.endswith(f"cost about {sum(costs)} tokens (two {costs[1]}, one {costs[0]})")
