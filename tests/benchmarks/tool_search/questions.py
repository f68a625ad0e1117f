"""Questions of users and the tools that answer them, over the recorded tools of real servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bridge.tools.specification import ToolAnnotations, ToolSpecification

TUNED_ON = Path(__file__).with_name("queries.txt")
"""Questions on which weights and words of the search were chosen."""
HELD_BACK = Path(__file__).with_name("held_back.txt")
"""Questions on which nothing was."""
RECORDED = Path(__file__).parents[2] / "doctor" / "recorded"
AT = 5
"""Names that a search returns."""

Search = Callable[[str], Sequence[str]]
"""Returns the names of the tools that are found, best first."""


class Question(NamedTuple):
    """A question, and the names of the tools of which any is right."""

    text: str
    kind: str
    answers: frozenset[str]


class Recall(NamedTuple):
    """Parts of questions whose tool is the first found, and among the first five."""

    questions: int
    at_1: float
    at_5: float


def questions(file: Path) -> list[Question]:
    """Read the questions of a file."""
    found: list[Question] = []
    kind = ""
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line and not line.startswith("#"):
            text, _, answers = line.partition(" => ")
            found.append(Question(text, kind, frozenset(each.replace("/", "_", 1) for each in answers.split())))
    return found


def tools() -> list[ToolSpecification]:
    """Read the tools of all servers, named as a gateway names them."""
    return [
        ToolSpecification(
            name=f"{path.stem}_{tool['name']}",
            title=tool.get("title"),
            description=tool.get("description"),
            parameters=tool["inputSchema"],
            annotations=ToolAnnotations(title=(tool.get("annotations") or {}).get("title")),
        )
        for path in sorted(RECORDED.glob("*.json"))
        for tool in json.loads(path.read_text("utf-8"))["tools"]
    ]


def recall(search: Search, asked: Iterable[Question]) -> Recall:
    """Measure a search."""
    found = [(question.answers, search(question.text)[:AT]) for question in asked]
    first = sum(bool(names) and names[0] in answers for answers, names in found)
    among = sum(not answers.isdisjoint(names) for answers, names in found)
    return Recall(len(found), first / len(found), among / len(found))
