"""Parser of the Dockerfile: its stages, and the settings of the last one for containers."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]


@dataclass
class Stage:
    """One stage: its instructions in order."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        return next(value for kind, value in reversed(self.instructions) if kind == instruction)

    def command(self, instruction: str) -> list[str]:
        """Return an instruction in exec form."""
        value = self.last(instruction)
        command: list[str] = json.loads(value[value.index("[") :])
        return command

    @property
    def environment(self) -> dict[str, str]:
        words = [word for kind, value in self.instructions if kind == "ENV" for word in shlex.split(value)]
        return dict(word.split("=", 1) for word in words)


def stages() -> list[Stage]:
    """Return the stages of the Dockerfile."""
    found: list[Stage] = []
    for entry in DockerfileParser(str(ROOT / "Dockerfile")).structure:
        kind, value = entry["instruction"], entry["value"]
        if kind == "FROM":
            base, _, name = value.partition(" AS ")
            found.append(Stage(base, name or str(len(found))))
        elif found and kind != "COMMENT":
            found[-1].instructions.append((kind, value))
    return found
