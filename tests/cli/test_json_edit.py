from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cli.install.json_text import member_of, with_member
from bridge.client.config.document import parse_jsonc
from bridge.errors import ConfigError

ENTRY = {"command": "x"}


def edited(text: str, section: str = "mcpServers", name: str = "new", value: dict[str, Any] | None = None) -> str:
    return with_member(text, section, name, ENTRY if value is None else value, "file")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "new": {\n      "command": "x"\n    }\n  }\n}\n'),
        (" \n\n", '{\n  "mcpServers": {\n    "new": {\n      "command": "x"\n    }\n  }\n}\n'),
        ("\ufeff", '\ufeff{\n  "mcpServers": {\n    "new": {\n      "command": "x"\n    }\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "new": {\n      "command": "x"\n    }\n  }\n}'),
        ("{ }\n", '{\n  "mcpServers": {\n    "new": {\n      "command": "x"\n    }\n  }\n}\n'),
        ('{"mcpServers": { }}\n', '{"mcpServers": {"new": {"command": "x"}}}\n'),
        ('{"mcpServers": {"new": {"command": "y"}}}', '{"mcpServers": {"new": {"command": "x"}}}'),
        (
            '{\n  // a comment\n    "mcpServers": {\n    }\n}',
            '{\n  // a comment\n    "mcpServers": {\n        "new": {\n            "command": "x"\n        }\n    }\n}',
        ),
        (
            '{ "a": 1,\n  "mcpServers": {\n    "b": {} } }',
            '{ "a": 1,\n  "mcpServers": {\n    "b": {},\n    "new": {\n      "command": "x"\n    } } }',
        ),
        (
            '{\n\n   "mcpServers": {\n\n      "a": {}\n   }\n}',
            '{\n\n   "mcpServers": {\n\n      "a": {},\n      "new": {\n         "command": "x"\n      }\n   }\n}',
        ),
        ('{"a": 1}', '{"a": 1, "mcpServers": {"new": {"command": "x"}}}'),
        ('{"mcpServers": {"a": {}}}', '{"mcpServers": {"a": {}, "new": {"command": "x"}}}'),
        (
            '{\n    "mcpServers": {\n        "a": {}\n    },\n    "z": [1,2]\n}\n',
            (
                '{\n    "mcpServers": {\n        "a": {},\n        "new": {\n            "command": "x"\n        }\n'
                '    },\n    "z": [1,2]\n}\n'
            ),
        ),
        (
            '{\n\t"mcpServers": {}\n}',
            '{\n\t"mcpServers": {\n\t\t"new": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}',
        ),
        (
            '{\r\n  "a": 1\r\n}\r\n',
            '{\r\n  "a": 1,\r\n  "mcpServers": {\r\n    "new": {\r\n      "command": "x"\r\n    }\r\n  }\r\n}\r\n',
        ),
    ],
)
def test_a_member_is_laid_out_as_its_neighbours_are(before: str, after: str) -> None:
    assert edited(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '// top\n{\n  "mcpServers": {\n    "a": {} // last\n    // end\n  }\n}',
            (
                '// top\n{\n  "mcpServers": {\n    "a": {}, // last\n    "new": {\n      "command": "x"\n    }\n'
                "    // end\n  }\n}"
            ),
        ),
        (
            '{\n  "mcpServers": {\n    "a": {}, /* , */\n  },\n}',
            '{\n  "mcpServers": {\n    "a": {}, /* , */\n    "new": {\n      "command": "x"\n    },\n  },\n}',
        ),
        (
            '{\n  "mcpServers": {\n    "a": {} /* , */ ,\n  },\n}',
            '{\n  "mcpServers": {\n    "a": {} /* , */ ,\n    "new": {\n      "command": "x"\n    },\n  },\n}',
        ),
        (
            '{\n  "mcpServers": {\n    // nothing yet\n  }\n}',
            '{\n  "mcpServers": {\n    // nothing yet\n    "new": {\n      "command": "x"\n    }\n  }\n}',
        ),
        (
            '{ // a brace } and "mcpServers": {\n  "s": "// no comment /* { */"\n}',
            (
                '{ // a brace } and "mcpServers": {\n  "s": "// no comment /* { */",\n  "mcpServers": {\n'
                '    "new": {\n      "command": "x"\n    }\n  }\n}'
            ),
        ),
    ],
)
def test_comments_and_trailing_commas_stay_where_they_are(before: str, after: str) -> None:
    assert edited(before) == after


def test_an_entry_of_the_same_name_is_replaced_and_nothing_else() -> None:
    before = (
        '{\n "mcpServers": {\n  "new": {"command": "old", /* why */ "args": [1]}, // kept\n  "b": 1e2\n },\n "k": 1\n}'
    )
    after = before.replace('"old", /* why */ "args": [1]}', '"x" /* why */ }')
    assert edited(before) == after


def test_members_of_an_entry_are_set_and_removed_among_its_comments() -> None:
    before = (
        '{"mcpServers": {\n  "new": {\n    // why\n    "command": "y", // the program\n    "env": {}, // its\n'
        '    "cwd": "/",\n    "own": { // mine\n    }, // end\n    "url": 1 // last\n  } // new\n}}\n'
    )
    after = (
        '{"mcpServers": {\n  "new": {\n    // why\n    "command": "x", // the program\n    // its\n'
        '    "own": { // mine\n    } // end\n    // last\n  } // new\n}}\n'
    )
    assert edited(before, value={"command": "x", "own": {}}) == after
    assert edited('{"mcpServers": {"new": {"url": 1}}}') == '{"mcpServers": {"new": {"command": "x"}}}'


def test_comments_in_objects_of_the_entry_are_kept() -> None:
    before = (
        '{"mcpServers": {\n  "new": {\n    "env": { // its\n      "A": "b", // why\n      "Z": "z"\n    }\n  }\n}}\n'
    )
    after = before.replace('"b", // why\n      "Z": "z"', '"c" // why')
    assert edited(before, value={"env": {"A": "c"}}) == after
    empty = '{"mcpServers": {\n  "new": { // mine\n  }\n}}\n'
    assert edited(empty, value={"a": 1}) == empty.replace("mine\n", 'mine\n    "a": 1\n')


def test_of_a_key_that_stands_twice_the_one_that_counts_is_edited() -> None:
    before = '{"mcpServers": {"a": 1}, "mcpServers": {"new": {"command": "old"}, "new": {}}}'
    assert edited(before) == before.replace('"new": {}', '"new": {"command": "x"}')


def test_a_name_may_have_any_characters() -> None:
    name = 'a "quoted" \\ 木 {//'
    text = edited("{}", name=name)
    assert json.loads(text) == {"mcpServers": {name: ENTRY}}
    assert edited(text, name=name) == text


@pytest.mark.parametrize("text", ["[]", "1", '"x"', '{"mcpServers": []}', '{"mcpServers": null}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a JSON object"):
        edited(text)


@pytest.mark.parametrize("text", ["{", '{"a": }', "{'a': 1}", "// only a comment", "{} {}", '{"a": NaN}'])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        edited(text)


def test_the_present_entry_can_be_read() -> None:
    text = '{"mcpServers": {"a": {"command": "x",},},}'
    assert member_of(text, "mcpServers", "a", "file") == {"command": "x"}
    assert member_of(text, "mcpServers", "b", "file") is None
    assert member_of(text, "servers", "a", "file") is None
    assert member_of(" ", "servers", "a", "file") is None
    assert member_of("[]", "servers", "a", "file") is None


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
DOCUMENTS = st.dictionaries(st.text() | st.just("other"), VALUES).flatmap(
    lambda rest: st.dictionaries(st.text() | st.just("new"), VALUES).map(
        lambda servers: {**rest, "mcpServers": servers}
    )
) | st.dictionaries(st.text(), VALUES).filter(lambda document: "mcpServers" not in document)
DECORATIONS = st.sampled_from(["", " ", "\n", "\r\n\t", " /* } , */ ", ' // { , "\n', "\n// x\r\n"])


@given(document=DOCUMENTS, indent=st.sampled_from([None, 0, 1, 4, "\t"]), data=st.data())
def test_every_layout_keeps_its_characters_and_gains_the_entry(
    document: dict[str, Any], indent: int | str | None, data: st.DataObject
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=data.draw(st.booleans()))
    head, tail = data.draw(DECORATIONS), data.draw(DECORATIONS)
    if "mcpServers" in document and data.draw(st.booleans()):
        text = text[:-1] + data.draw(DECORATIONS) + "," + data.draw(DECORATIONS) + "}"
    text = head + text + tail
    result = edited(text)
    before = parse_jsonc(text, "file")
    before.setdefault("mcpServers", {})["new"] = ENTRY
    assert parse_jsonc(result, "file") == before
    if "new" not in document.get("mcpServers", {}):
        rest = iter(result)
        assert all(character in rest for character in text), "a character is gone, or has moved"
    assert parse_jsonc(edited(result), "file") == before
