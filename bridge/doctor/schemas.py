"""Rules of schemas: valid JSON Schema, and conversion for each provider."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for

from bridge.doctor.providers import PROVIDERS
from bridge.doctor.rule import Problem, rule
from bridge.models.profiles.normalization import normalized
from bridge.text import clip_lines, diff_lines
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.doctor.providers import Provider
    from bridge.doctor.subject import Subject
    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.tools.specification import ToolSpecification
    from bridge.types import Json

_MAX_DIFF_LINES = 60
_MAX_SHOWN_CHARS = 200


@rule("error")
def schema_invalid(subject: Subject) -> Iterator[Problem]:
    """The schema of a tool's arguments or of its results is not valid JSON Schema.

    It is judged by the draft that its `$schema` names, or else by 2020-12, as MCP prescribes. Providers refuse the
    whole request because of one such schema. Bridge's chat models leave out malformed keywords.
    """
    for definition, specification in subject.tools:
        for key, schema in _schemas(specification):
            if (problem := _invalid(schema)) is not None:
                remedy = "correct the schema"
                yield Problem(item=definition.item, message=problem[1], remedy=remedy, where=f"{key}{problem[0]}")


@rule("error")
def schema_reference_broken(subject: Subject) -> Iterator[Problem]:
    """A schema refers to another document, or to a definition that does not exist.

    Clients must not fetch schemas over the network: the reference would make them send requests to any host. Bridge
    never follows such a reference, and accepts any value in its place.
    """
    for definition, specification in subject.tools:
        for key, schema in _schemas(specification):
            for loss in normalized(schema).losses:
                if "reference" in loss:
                    remedy = "define the part under $defs in the same schema"
                    yield Problem(item=definition.item, message=f"it has {loss}", remedy=remedy, where=key)


@rule("warning")
def result_schema_refused(subject: Subject) -> Iterator[Problem]:
    """The schema of a tool's results is not an object at the root.

    Revisions of MCP before 2026-07-28 allow only objects, and clients of these revisions refuse the list of tools
    or the results. Bridge wraps such results of Python functions in an object.
    """
    for definition, specification in subject.tools:
        schema = specification.output_schema
        if schema is not None and schema.get("type") != "object":
            message = f"its type is {json.dumps(schema.get('type'))[:_MAX_SHOWN_CHARS]}"
            remedy = "return an object with a field for the value"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="outputSchema")


@rule("warning")
def schema_loses_meaning(subject: Subject) -> Iterator[Problem]:
    """A provider does not support a part of a tool's schema, and the part cannot be expressed in another way.

    Bridge's chat models send a schema that accepts more, as the diff shows, and validate the arguments against the
    original. The model does not know the restriction, so more of its calls fail. For Gemini, which has no chat model in
    bridge, the diff shows the schema in the subset that Gemini accepts.
    """
    for definition, specification in subject.tools:
        for provider in PROVIDERS:
            rewriting = provider.profile.rewrite(specification.parameters)
            if rewriting.losses:
                yield Problem(
                    item=definition.item,
                    message=f"{provider.name} does not support {'; '.join(rewriting.losses)}",
                    remedy="use plain objects, properties and enums",
                    where="inputSchema",
                    detail=_difference(specification.parameters, rewriting.schema),
                )


@rule("note")
def schema_rewritten(subject: Subject) -> Iterator[Problem]:
    """Bridge's chat models change the schema of a tool for a provider, without loss.

    The diff shows the change. Other clients that send the schema unchanged may be refused. OpenAI and Anthropic refuse
    alternatives at the root; Bedrock also ignores references; Gemini accepts one type for each schema, and `nullable`.
    Gemini is reported only if more than `additionalProperties` differs.
    """
    for definition, specification in subject.tools:
        for provider in PROVIDERS:
            rewriting = provider.profile.rewrite(specification.parameters)
            received = "receives" if provider.has_adapter else "needs"
            if not rewriting.losses and _comparable(rewriting.schema) != _comparable(specification.parameters):
                yield Problem(
                    item=definition.item,
                    message=f"{provider.name} {received} another schema with the same meaning",
                    remedy="nothing, unless a client sends the schema unchanged",
                    where="inputSchema",
                    detail=_difference(specification.parameters, rewriting.schema),
                )


@rule("warning")
def strict_impossible(subject: Subject) -> Iterator[Problem]:
    """A tool requests strict mode, and a provider cannot enforce its schema.

    The provider gets the schema without strict mode. The message gives the first reason.
    """
    for definition, specification in subject.tools:
        if specification.strict and (reasons := _not_strict(specification)):
            remedy = "give every part a type, and close objects with additionalProperties: false"
            yield Problem(item=definition.item, message=reasons, remedy=remedy, where="inputSchema")


@rule("note")
def schema_not_strict(subject: Subject) -> Iterator[Problem]:
    """The schema of a tool cannot be used in the strict mode of a provider, in which the provider enforces it.

    Bridge then sends it without strict mode, also where a chat model has `strict=True`. The message gives the first
    reason for each provider.
    """
    for definition, specification in subject.tools:
        if specification.strict is None and (reasons := _not_strict(specification)):
            remedy = "nothing, unless strict mode is wanted"
            yield Problem(item=definition.item, message=reasons, remedy=remedy, where="inputSchema")


def provider_forms(specification: ToolSpecification, sent_name: str) -> Iterator[tuple[str, Json]]:
    """Definition that each provider receives: its name, schema and losses, for reports."""
    for provider in PROVIDERS:
        plain = provider.profile.rewrite(specification.parameters)
        name = sent_name if provider.has_adapter else specification.name
        strict = provider.profile.rewrite(specification.parameters, strict=True) if provider.has_strict_mode else None
        yield (
            provider.name,
            {"name": name, "schema": plain.schema, "losses": list(plain.losses)} | without_none(strict=_strict(strict)),
        )


def _strict(rewriting: RewrittenSchema | None) -> Json | None:
    if rewriting is None:
        return None
    if rewriting.is_strict:
        return {"schema": rewriting.schema}
    return {"schema": None, "reason": rewriting.losses[-1]}


def _not_strict(specification: ToolSpecification) -> str:
    """Reasons of the providers against strict mode; empty if all of them support it."""
    return "; ".join(
        f"{provider.name}: {reason}"
        for provider in PROVIDERS
        if provider.has_strict_mode and (reason := _reason(provider, specification)) is not None
    )


def _reason(provider: Provider, specification: ToolSpecification) -> str | None:
    rewriting = provider.profile.rewrite(specification.parameters, strict=True)
    return None if rewriting.is_strict else rewriting.losses[-1].removeprefix("strictness: ")


def _schemas(specification: ToolSpecification) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "inputSchema", specification.parameters
    if specification.output_schema is not None:
        yield "outputSchema", specification.output_schema


def _invalid(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """Path and message of the first error; None for a valid schema."""
    try:
        validator_for(dict(schema), default=Draft202012Validator).check_schema(dict(schema))
    except SchemaError as error:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.path)
        return path, error.message[:_MAX_SHOWN_CHARS]
    except RecursionError:
        return "", "it is nested too deeply"
    return None


def _comparable(value: Any) -> Any:
    """A schema without parts that some providers ignore, and that mean nothing or little."""
    if not isinstance(value, dict):
        return [_comparable(each) for each in value] if isinstance(value, list) else value
    ignored = {"additionalProperties", "$schema", *(("properties",) if value.get("properties") == {} else ())}
    return {key: _comparable(each) for key, each in value.items() if key not in ignored}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    old, new = (json.dumps(dict(each), indent=2, sort_keys=True, ensure_ascii=False) for each in (before, after))
    return "\n".join(clip_lines(diff_lines(old, new, "inputSchema", "sent"), _MAX_DIFF_LINES))
