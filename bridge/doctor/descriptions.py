"""Rules of descriptions: missing, doubled and too long ones, and the tokens of all definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.doctor.providers import PROVIDERS
from bridge.doctor.rule import Problem, rule
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.subject import Definition, Subject

MAX_DESCRIPTION_CHARS = 1024
"""Maximum characters of a description that every deployment of OpenAI's API accepts."""
MAX_TOOL_TOKENS = 2_000
"""Tokens of one tool from which it is reported."""
MAX_TOTAL_TOKENS = 10_000
"""Tokens of all tools together from which they are reported (Anthropic, "Tool search tool")."""
_MAX_NAMED = 5


@rule("warning")
def description_missing(subject: Subject) -> Iterator[Problem]:
    """A tool, resource or prompt has no description.

    The name is then all that a model knows. The docstring of a Python function is its description.
    """
    for definition in subject.definitions:
        if not definition.description.strip():
            remedy = "describe its purpose, and when to use it"
            yield Problem(item=definition.item, message="it has no description", remedy=remedy, where="description")


@rule("note")
def parameter_undescribed(subject: Subject) -> Iterator[Problem]:
    """Parameters of a tool have no description.

    Names such as `date` leave the format to the model's guess. In Python, the section `Args` of the docstring describes
    the parameters; see [Parameters](../tools/parameters.md).
    """
    for definition, specification in subject.tools:
        properties = specification.parameters.get("properties")
        if not isinstance(properties, dict):
            continue
        bare = [name for name, each in properties.items() if not (isinstance(each, dict) and each.get("description"))]
        if bare:
            more = f" and {len(bare) - _MAX_NAMED} more" if len(bare) > _MAX_NAMED else ""
            message = f"no description of {', '.join(map(repr, bare[:_MAX_NAMED]))}{more}"
            yield Problem(item=definition.item, message=message, remedy="describe them", where="inputSchema.properties")


@rule("warning")
def description_doubled(subject: Subject) -> Iterator[Problem]:
    """Two tools have the same description, so that a model chooses between them by their names alone."""
    first_with: dict[str, Definition] = {}
    for definition, _ in subject.tools:
        text = " ".join(definition.description.split()).casefold()
        if text and (first := first_with.setdefault(text, definition)) is not definition:
            message = f"the {first.item} has the same description"
            remedy = "describe the difference, or leave one out"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="description")


@rule("warning")
def description_too_long(subject: Subject) -> Iterator[Problem]:
    """The description of a tool has more than 1,024 characters.

    Some deployments of OpenAI's API refuse a request with such a description. It also costs tokens in every request.
    """
    for definition, specification in subject.tools:
        if len(specification.description or "") > MAX_DESCRIPTION_CHARS:
            message = f"{len(specification.description or ''):,} characters; some providers accept 1,024"
            remedy = "move details to the parameters, to results, or to a resource"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="description")


@rule("warning")
def tool_expensive(subject: Subject) -> Iterator[Problem]:
    """The definition of one tool costs more than 2,000 tokens, which are sent with every request.

    The number is an estimate: one token for four ASCII characters, and one for each other character.
    """
    for definition, specification in subject.tools:
        if (tokens := specification.estimated_tokens) > MAX_TOOL_TOKENS:
            message = f"its definition costs about {tokens:,} tokens in every request"
            yield Problem(item=definition.item, message=message, remedy="shorten the description and the schema")


@rule("warning")
def tools_expensive(subject: Subject) -> Iterator[Problem]:
    """The definitions of all tools of a target cost more than 10,000 tokens, which are sent with every request.

    Models choose worse among many tools. `include` and `exclude` of a [configuration](../clients/configuration.md)
    leave tools out, and [tool search](../services/tool-search.md) sends only those that are needed.
    """
    for target in subject.targets:
        specifications = [each for definition, each in subject.tools if definition.item.source == target.item.source]
        if (tokens := sum(each.estimated_tokens for each in specifications)) > MAX_TOTAL_TOKENS:
            message = f"{with_count(len(specifications), 'tool')} cost about {tokens:,} tokens in every request"
            yield Problem(item=target.item, message=message, remedy="leave tools out, or use tool search")


@rule("warning")
def tools_too_many(subject: Subject) -> Iterator[Problem]:
    """A target has more tools than a provider accepts in one request: OpenAI 128, Gemini 512."""
    for target in subject.targets:
        count = sum(definition.item.source == target.item.source for definition, _ in subject.tools)
        for provider in PROVIDERS:
            if provider.max_tools is not None and count > provider.max_tools:
                message = f"{count} tools; {provider.name} accepts {provider.max_tools} in a request"
                yield Problem(item=target.item, message=message, remedy="leave tools out, or use tool search")
