"""Resources, prompts and skills for the official conformance suite, and all features together."""

from pathlib import Path
from typing import Any

from fixtures import RED_PIXEL, TOOLS  # type: ignore[import-not-found]  # it stands beside this file
from task_fixtures import TASK_TOOLS  # type: ignore[import-not-found]  # as above

from bridge import Content, File, Image, InvocationContext, ResourceBox, prompt, resource, tool
from bridge.prompts import PromptBox
from bridge.server import Features
from bridge.skills import skills_in
from bridge.tools import Elicitation


@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A static text resource."""
    return "This is the content of the static text resource."


@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A static binary resource."""
    return bytes(RED_PIXEL)


@resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:  # noqa: A002 - the suite's name
    """Data of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A resource to subscribe to."""
    return "Nothing has changed."


@prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments.

    Args:
        arg1: First test argument
        arg2: Second test argument
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Content | str]:  # noqa: N803 - the suite's name
    """A prompt with a resource in it."""
    resource = File(resourceUri, "Embedded resource content for testing.", "text/plain")
    return [resource, "Please process the embedded resource above."]


@prompt
def test_prompt_with_image() -> list[Content | str]:
    """A prompt with an image."""
    return [Image(RED_PIXEL, "image/png"), "Please analyze the image above."]


CONTEXT = Elicitation(
    "What context should the prompt use?",
    {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]},
)


@prompt
async def test_input_required_result_prompt(context: InvocationContext) -> str:
    """A prompt that asks."""
    answers = await context.ask({"user_context": CONTEXT})
    return f"Prompt with context: {answers['user_context']}"


@prompt
def added_prompt_while_running() -> str:
    """A prompt that comes and goes."""
    return "Here I am."


@tool
def test_trigger_prompt_change() -> str:
    """Adds a prompt, or takes it away again."""
    if "added_prompt_while_running" in PROMPTS:
        PROMPTS.remove("added_prompt_while_running")
        return "A prompt was removed."
    PROMPTS.add(added_prompt_while_running)
    return "A prompt was added."


RESOURCES = ResourceBox(static_text, static_binary, template_data, watched_resource)
PROMPTS = PromptBox(
    test_simple_prompt,
    test_prompt_with_arguments,
    test_prompt_with_embedded_resource,
    test_prompt_with_image,
    test_input_required_result_prompt,
)

TOOLS.add(test_trigger_prompt_change)
TOOLS.add(*TASK_TOOLS)
SKILLS = skills_in(Path(__file__).parent / "skills")
FEATURES = Features(tools=TOOLS, resources=RESOURCES, prompts=PROMPTS, skills=SKILLS)
