from __future__ import annotations

import logging

import pytest

from bridge.models.conversation import conversation_of
from bridge.models.profiles.profile import OPENAI
from bridge.models.provider_schemas import ProviderRequest, ProviderSchemas, describe_format, format_name
from bridge.service.chat_model import ResponseFormat
from tests.models.requests import asking

SCHEMAS = ProviderSchemas(OPENAI)
OPTIONAL = ResponseFormat({"type": "object", "properties": {"a": {"type": "string"}}})


def prepared(response_format: ResponseFormat | None) -> ProviderRequest:
    """Return a request for a reply in a format, as a provider receives it."""
    request = asking("Hello", response_format=response_format)
    return SCHEMAS.prepared(request, conversation_of(request), "gpt")


def test_text_has_no_schema() -> None:
    assert prepared(None).rewriting is None
    assert prepared(None).restored_text('{"a":null}') == '{"a":null}'


def test_a_schema_is_rewritten_once() -> None:
    first = prepared(OPTIONAL).rewriting
    assert first is prepared(ResponseFormat(dict(OPTIONAL.schema))).rewriting
    assert first is not prepared(ResponseFormat(OPTIONAL.schema, strict=False)).rewriting


@pytest.mark.parametrize(
    ("said", "meant"), [('{"a": null}', "{}"), ('{"a": "ß"}', '{"a":"ß"}'), ('{"a": nul', '{"a": nul'), ("Hi", "Hi")]
)
def test_what_was_said_under_a_strict_copy_is_put_back(said: str, meant: str) -> None:
    assert prepared(OPTIONAL).restored_text(said) == meant


def test_what_is_lost_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    free = ResponseFormat({"type": "object", "additionalProperties": True}, "free")
    with caplog.at_level(logging.WARNING, "bridge.models"):
        assert prepared(free).rewriting is prepared(free).rewriting
    told = "the schema of the reply 'free' is not fully supported by OpenAI"
    assert caplog.messages == [f"{told}; lost: strictness: it has an object with free keys"]


@pytest.mark.parametrize(("name", "sent"), [("Größe 1", "Gr__e_1"), ("", "response"), ("x" * 70, "x" * 64)])
def test_a_format_has_a_name_that_providers_take(name: str, sent: str) -> None:
    assert format_name(ResponseFormat({}, name)) == sent


def test_a_format_in_words_has_the_schema_as_it_was_given() -> None:
    assert describe_format(OPTIONAL).endswith('\n{"type":"object","properties":{"a":{"type":"string"}}}')
