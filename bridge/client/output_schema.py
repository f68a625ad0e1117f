"""Output schemas: whether structured content is what its tool declares (MCP, Structured Content)."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bridge.client.plain_schema import proof_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema.protocols import Validator

    from bridge.client.plain_schema import Proof

_logger = logging.getLogger("bridge.client")
_MAX_PROBLEM_CHARS = 200


class OutputSchema:
    """A remote tool's output schema. It is compiled when it is first needed, and never fetched from anywhere.

    Args:
        schema: The JSON Schema, in whatever draft it says it is; 2020-12 where it does not say.
        owner: The tool, for the log.
    """

    def __init__(self, schema: Mapping[str, Any], owner: str) -> None:
        self._schema = dict(schema)
        self._owner = owner

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, in words; None where nothing is, or where the schema itself is none."""
        validator = self._validator
        if validator is None or ((proves := self._proof) is not None and proves(value)):
            return None
        from jsonschema.exceptions import best_match  # noqa: PLC0415 - loaded with the validator
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - likewise

        try:
            if validator.is_valid(value):
                return None
            error = best_match(validator.iter_errors(value))
        except (Unresolvable, RecursionError) as unusable:
            self._unusable(unusable)
            return None
        if error is None:
            return None
        where = "".join(f"[{key!r}]" for key in error.absolute_path)
        return f"{where}: {error.message}"[:_MAX_PROBLEM_CHARS] if where else error.message[:_MAX_PROBLEM_CHARS]

    @cached_property
    def _validator(self) -> Validator | None:
        from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - only where there is such a schema
        from jsonschema.validators import validator_for  # noqa: PLC0415 - likewise
        from referencing import Registry  # noqa: PLC0415 - likewise

        kind = validator_for(self._schema, default=Draft202012Validator)
        try:
            kind.check_schema(self._schema)
        except SchemaError as error:
            self._unusable(error)
            return None
        nowhere: Registry[Any] = Registry()  # the default one would ask the network for what it does not know
        return kind(self._schema, registry=nowhere)

    @cached_property
    def _proof(self) -> Proof | None:
        return proof_of(self._schema)

    def _unusable(self, error: Exception) -> None:
        _logger.warning("%s: its output schema cannot be used, and its results are not checked: %s", self._owner, error)
        self.__dict__["_validator"] = None
