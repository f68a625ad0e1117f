"""Features: what sources of tools, resources and prompts are, and what they are not."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette

from bridge import DefinitionError, NameClashError, ToolBox, tool
from bridge.server import Features


@tool
def plain() -> str:
    """Do nothing."""
    return ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tools": [plain]}, r"tools of Features must be a ToolBox, not .* Features\.of\(…\)"),
        ({"tools": None}, "tools of Features must be a ToolBox, not None"),
        ({"resources": ToolBox(plain)}, "resources of Features must be a ResourceBox"),
        ({"prompts": [plain]}, "prompts of Features must be a PromptBox"),
    ],
)
def test_features_take_boxes(options: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Features(**options)


def test_features_are_combined_and_their_changes_apply() -> None:
    features, tools = Features.of(plain), ToolBox()
    assert Features.of(features) is features
    both = Features.of(features, tools)
    tools.add(tool(name="later")(lambda: ""))
    assert [each.name for each in both.tools] == ["plain", "later"]
    with pytest.raises(NameClashError, match="two tools are named 'plain'"):
        Features.of(features, plain)


class App:
    """An application."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""


@pytest.mark.parametrize("app", [Starlette(), App(), App().__call__])
def test_an_application_is_no_source_of_tools(app: Any) -> None:
    for kind in (ToolBox, Features.of):
        with pytest.raises(DefinitionError, match="is an ASGI application and no source of tools; give the functions"):
            kind(app)
