"""Hypothesis strategies for all messages, and for malformed versions of them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from bridge.tools.content import Audio, File, Image, ResourceLink, Text
from bridge.tools.questions import (
    Elicitation,
    ElicitationAnswer,
    Root,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    ToolUse,
    ToolUseResult,
    UrlElicitation,
)
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.tools.questions import Answer, Question

texts = st.text(max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
full_objects = st.dictionaries(texts, json_values, min_size=1, max_size=3)
icons = st.lists(st.fixed_dictionaries({"src": texts}, optional={"mimeType": texts}), max_size=2).map(tuple)
roles = st.sampled_from(("user", "assistant"))
object_schemas = json_objects.map(lambda extra: {**extra, "type": "object"})

carried = {"annotations": st.none() | json_objects, "metadata": st.none() | json_objects}
contents = st.one_of(
    st.builds(Text, texts, **carried),
    st.builds(Image, st.binary(max_size=8), texts, **carried),
    st.builds(Audio, st.binary(max_size=8), texts, **carried),
    st.builds(File, texts, texts | st.binary(max_size=8), st.none() | texts, st.none() | json_objects, **carried),
    st.builds(
        ResourceLink,
        texts,
        texts,
        st.none() | texts,
        st.none() | texts,
        st.none() | texts,
        st.none() | st.integers(),
        icons,
        **carried,
    ),
)
blocks = st.lists(contents, max_size=3).map(tuple)

optional_flags = st.none() | st.booleans()
specifications = st.builds(
    ToolSpecification,
    name=st.text(min_size=1, max_size=8),
    title=st.none() | texts,
    description=st.none() | texts,
    parameters=object_schemas,
    output_schema=st.none() | json_objects,
    annotations=st.none()
    | st.builds(
        ToolAnnotations,
        title=st.none() | texts,
        read_only=optional_flags,
        destructive=optional_flags,
        idempotent=optional_flags,
        open_world=optional_flags,
    ),
    metadata=json_objects,
    icons=icons,
    strict=optional_flags,
)
results = st.builds(
    ToolExecutionResult, blocks, json_values, st.booleans(), metadata=json_objects, attributes=st.just({})
)

parts = st.lists(
    contents
    | st.builds(ToolUse, texts, texts, json_objects, st.none() | json_objects)
    | st.builds(ToolUseResult, texts, blocks, json_values, st.booleans(), st.none() | json_objects),
    max_size=3,
).map(tuple)
samplings = st.builds(
    Sampling,
    st.lists(st.builds(SamplingMessage, roles, parts, st.none() | json_objects), max_size=2),
    st.integers(),
    st.none() | texts,
    st.none() | numbers,
    st.lists(texts, max_size=2).map(tuple),
    st.none() | json_objects,
    json_objects,
    st.sampled_from((None, "none", "thisServer", "allServers")),
    st.lists(specifications, max_size=2).map(tuple),
    st.sampled_from((None, "auto", "required", "none")),
    json_objects,
)
questions: st.SearchStrategy[Question] = st.one_of(
    st.builds(Elicitation, texts, json_objects, json_objects),
    st.builds(UrlElicitation, texts, texts, texts, json_objects),
    samplings,
    st.builds(Roots, json_objects),
)
elicitation_answers = st.builds(
    ElicitationAnswer, st.sampled_from(("accept", "decline", "cancel")), st.none() | json_objects, json_objects
)
sampling_answers = st.builds(SamplingAnswer, parts, texts, roles, st.none() | texts, json_objects)
roots_answers = st.lists(st.builds(Root, texts, st.none() | texts, st.none() | json_objects), max_size=3).map(tuple)
answered_questions: st.SearchStrategy[tuple[Question, Answer]] = st.one_of(
    st.tuples(st.builds(Elicitation, texts, json_objects), elicitation_answers),
    st.tuples(st.builds(UrlElicitation, texts, texts, texts), elicitation_answers),
    st.tuples(samplings, sampling_answers),
    st.tuples(st.just(Roots()), roots_answers),
)


def spoiled(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return any JSON, or valid JSON with one part removed or replaced by any JSON."""
    return json_values | st.composite(_spoil)(valid)


def _spoil(draw: st.DrawFn, valid: st.SearchStrategy[Any]) -> Any:
    document = {"whole": deepcopy(draw(valid))}
    places = list(_places(document))
    parent, key = places[draw(st.integers(0, len(places) - 1))]
    if draw(st.booleans()) and parent is not document:
        del parent[key]
    else:
        parent[key] = draw(json_values)
    return document["whole"]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _places(node[key])
