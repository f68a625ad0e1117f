"""A server with two extensions, whose tool, resource and prompt return those that the client declares."""

from __future__ import annotations

import json
from typing import Any

from bridge import InvocationContext, ResourceBox, ToolBox, prompt, resource, tool
from bridge.prompts import PromptBox
from bridge.server import Features

COLOURS, SOUNDS = "com.example/colours", "com.example/sounds"


def declared(context: InvocationContext) -> dict[str, Any]:
    """Return the extensions that the client declares, without those of the protocol itself."""
    extensions = context.client_capabilities.get("extensions") or {}
    return {key: extensions[key] for key in extensions if key.startswith("com.example/")}


@tool(name="declared")
def _tool(context: InvocationContext) -> dict[str, Any]:
    """Return the declared extensions."""
    return declared(context)


@resource("declared://all", name="declared")
def _resource(context: InvocationContext) -> str:
    """Return the declared extensions."""
    return json.dumps(declared(context))


@prompt(name="declared")
def _prompt(context: InvocationContext) -> str:
    """Return the declared extensions."""
    return json.dumps(declared(context))


features = Features(
    tools=ToolBox(_tool),
    resources=ResourceBox(_resource),
    prompts=PromptBox(_prompt),
    extensions={COLOURS: {"palette": 16}, SOUNDS: {}},
)
