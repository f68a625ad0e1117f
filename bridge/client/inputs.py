"""Inputs: the values that a configuration asks a person for (VS Code's ``inputs`` and ``${input:id}``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bridge.client.config.document import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.client.config.document import Findings


class InputDefinition(BaseModel):
    """One value to ask for."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)

    id: str = Field(min_length=1, description="The name that ${input:…} uses.")
    description: str | None = Field(default=None, description="What a person is asked for.")
    default: str | None = Field(default=None, description="What is used where nobody says otherwise.")
    password: bool = Field(default=False, description="Hide what is typed.")
    options: list[Any] | None = Field(default=None, description="What a person chooses from.")


InputSource: TypeAlias = "Mapping[str, str] | Callable[[InputDefinition], str | None]"
"""Where the values come from: a mapping by id, or a function that asks and returns None where it has no answer."""


class Inputs:
    """The values of the inputs, each asked for once and only when something needs it.

    A value comes from the source, else from the environment (``api-key`` from ``BRIDGE_INPUT_API_KEY``), else from the
    definition's default.
    """

    def __init__(
        self, definitions: Iterable[InputDefinition], source: InputSource | None, environ: Mapping[str, str]
    ) -> None:
        self._definitions = {definition.id: definition for definition in definitions}
        self._source = source
        self._environ = environ
        self._values: dict[str, str | None] = {}

    def value(self, input_id: str) -> str | None:
        """The value of an input; None where there is none."""
        if input_id not in self._values:
            self._values[input_id] = self._find(self._definition(input_id))
        return self._values[input_id]

    def missing(self, input_id: str) -> str:
        """What to say where there is no value."""
        described = self._definition(input_id).description
        return (
            f"the input {input_id!r}{f' ({described!r})' if described else ''} has no value: give it in inputs=, "
            f"or set {_variable(input_id)}"
        )

    def _definition(self, input_id: str) -> InputDefinition:
        return self._definitions.get(input_id) or InputDefinition(id=input_id)

    def _find(self, definition: InputDefinition) -> str | None:
        value = None
        if callable(self._source):
            value = self._source(definition)
        elif self._source is not None:
            value = self._source.get(definition.id)
        if value is None:
            value = self._environ.get(_variable(definition.id))
        return definition.default if value is None else value


def read_inputs(raw: Any, findings: Findings) -> tuple[InputDefinition, ...]:
    """Read the definitions of a configuration."""
    if raw is None:
        return ()
    if not isinstance(raw, list):
        findings.problem(f"should be a list, not {kind_of(raw)}", key="inputs")
        return ()
    definitions: dict[str, InputDefinition] = {}
    for index, item in enumerate(raw):
        place = f"inputs[{index}]"
        try:
            definition = InputDefinition.model_validate(item)
        except ValidationError as error:
            findings.invalid(error, within=place, written={})
            continue
        if definition.id in definitions:
            findings.problem(f"two inputs have the id {definition.id!r}: rename one", key=f"{place}.id")
        definitions[definition.id] = definition
    return tuple(definitions.values())


def _variable(input_id: str) -> str:
    return "BRIDGE_INPUT_" + re.sub(r"[^A-Za-z0-9]", "_", input_id).upper()
