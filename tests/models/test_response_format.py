from __future__ import annotations

import logging

import pytest

from bridge.models.profiles.profile import OPENAI
from bridge.models.provider_schemas import ResponseFormatWriter, describe_format, format_name, restored_text
from bridge.service.chat_model import ResponseFormat

OPTIONAL = ResponseFormat({"type": "object", "properties": {"a": {"type": "string"}}})


def test_text_has_no_schema() -> None:
    assert ResponseFormatWriter(OPENAI).rewriting(None) is None
    assert restored_text('{"a":null}', None) == '{"a":null}'


def test_a_schema_is_rewritten_once() -> None:
    writer = ResponseFormatWriter(OPENAI)
    first = writer.rewriting(OPTIONAL)
    assert first is writer.rewriting(ResponseFormat(dict(OPTIONAL.schema)))
    assert first is not writer.rewriting(ResponseFormat(OPTIONAL.schema, strict=False))


@pytest.mark.parametrize(
    ("said", "meant"), [('{"a": null}', "{}"), ('{"a": "ß"}', '{"a":"ß"}'), ('{"a": nul', '{"a": nul'), ("Hi", "Hi")]
)
def test_what_was_said_under_a_strict_copy_is_put_back(said: str, meant: str) -> None:
    assert restored_text(said, ResponseFormatWriter(OPENAI).rewriting(OPTIONAL)) == meant


def test_what_is_lost_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    writer = ResponseFormatWriter(OPENAI)
    free = ResponseFormat({"type": "object", "additionalProperties": True}, "free")
    with caplog.at_level(logging.WARNING, "bridge.models"):
        assert writer.rewriting(free) is writer.rewriting(free)
    told = "the schema of the reply 'free' is not fully supported by OpenAI"
    assert caplog.messages == [f"{told}; lost: strictness: it has an object with free keys"]


@pytest.mark.parametrize(("name", "sent"), [("Größe 1", "Gr__e_1"), ("", "response"), ("x" * 70, "x" * 64)])
def test_a_format_has_a_name_that_providers_take(name: str, sent: str) -> None:
    assert format_name(ResponseFormat({}, name)) == sent


def test_a_format_in_words_has_the_schema_as_it_was_given() -> None:
    assert describe_format(OPTIONAL).endswith('\n{"type":"object","properties":{"a":{"type":"string"}}}')
