"""Tools for the official conformance suite, by the names that it requires.

The suite's scenario descriptions specify their behaviour. `test_simple_text` comes first, because one scenario calls
the first tool of the list without arguments.
"""

import json
from base64 import b64decode
from typing import Annotated, Any

from pydantic import Field

from bridge import (
    Audio,
    Content,
    File,
    Image,
    InvocationContext,
    Text,
    Tool,
    ToolBox,
    ToolError,
    ToolExecutionRequest,
    ToolExecutionResult,
    ToolSpecification,
    tool,
)
from bridge.tools import Elicitation, ElicitationAnswer, Question, Roots, Sampling, SamplingAnswer, SamplingMessage

RED_PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")


def form(**properties: str) -> dict[str, Any]:
    """Return a form of required fields, each with its JSON type."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


NAME = Elicitation("What is your name?", form(name="string"))


def question(text: str, max_tokens: int = 100) -> Sampling:
    return Sampling([SamplingMessage("user", (Text(text),))], max_tokens)


# --- results ---------------------------------------------------------------------------------------------------------


@tool
def test_simple_text() -> str:
    """Simple text."""
    return "This is a simple text response for testing."


@tool
def test_image_content() -> Image:
    """A picture."""
    return Image(RED_PIXEL)


@tool
def test_audio_content() -> Audio:
    """A sound."""
    return Audio(SILENCE)


@tool
def test_embedded_resource() -> File:
    """A file inside the result."""
    return File("test://embedded-resource", "This is an embedded resource content.", "text/plain")


@tool
def test_multiple_content_types() -> list[Content]:
    """Text, a picture and a file in one result."""
    data = json.dumps({"test": "data", "value": 123})
    return [
        Text("Multiple content types test:"),
        Image(RED_PIXEL),
        File("test://mixed-content-resource", data, "application/json"),
    ]


@tool
def test_error_handling() -> str:
    """Always fails."""
    raise ToolError("This tool intentionally returns an error for testing")


# --- what a running tool says ----------------------------------------------------------------------------------------


@tool
async def test_tool_with_progress(context: InvocationContext) -> str:
    """Reports progress three times."""
    for done in (0, 50, 100):
        await context.progress(done, 100)
    return "Progress was reported."


@tool
async def test_tool_with_logging(context: InvocationContext) -> str:
    """Logs three messages."""
    await context.log("info", "Tool execution started")
    await context.log("info", "Tool processing data")
    await context.log("info", "Tool execution completed")
    return "Three messages were logged."


@tool
async def test_logging_tool(context: InvocationContext) -> str:
    """Logs at every call, and is heard only by who asked to hear."""
    await context.log("info", "This is for those who set a log level.")
    return "One message was logged."


@tool
async def test_reconnection(context: InvocationContext) -> str:
    """Closes its stream before it answers."""
    await context.close_stream()
    return "The stream was resumed."


# --- what a running tool asks, in either era -------------------------------------------------------------------------


@tool
async def test_sampling(prompt: str, context: InvocationContext) -> str:
    """Asks the client's model."""
    answer = await context.sample([SamplingMessage("user", (Text(prompt),))], max_tokens=100)
    return f"LLM response: {said(answer)}"


@tool
async def test_elicitation(message: str, context: InvocationContext) -> str:
    """Asks the person for a name and an address."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await context.elicit(message, {"type": "object", "properties": fields, "required": list(fields)})
    return f"User response: {answered(answer)}"


@tool
async def test_elicitation_sep1034_defaults(context: InvocationContext) -> str:
    """Asks with a default for every primitive type."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    answer = await context.elicit("Check these defaults", {"type": "object", "properties": fields})
    return f"Elicitation completed: {answered(answer)}"


@tool
async def test_elicitation_sep1330_enums(context: InvocationContext) -> str:
    """Asks with every kind of enum."""
    options = ["option1", "option2", "option3"]
    options_titled, choices_titled = (
        [
            {"const": f"value{n}", "title": f"{ordinal} {kind}"}
            for n, ordinal in enumerate(("First", "Second", "Third"), 1)
        ]
        for kind in ("Option", "Choice")
    )
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": options_titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": choices_titled}},
    }
    answer = await context.elicit("Choose", {"type": "object", "properties": fields})
    return f"Elicitation completed: {answered(answer)}"


@tool
async def test_streaming_elicitation(context: InvocationContext) -> str:
    """Says how far it is, then asks."""
    await context.progress(1, 2)
    return f"Elicitation completed: {answered(await context.elicit('Go on?', form(ok='boolean')))}"


@tool
async def test_missing_capability(context: InvocationContext) -> str:
    """Needs a client that can sample."""
    return said(await context.sample([SamplingMessage("user", (Text("Say something."),))], max_tokens=10))


@tool
async def test_input_required_result_elicitation(context: InvocationContext) -> str:
    """Greets the person by name."""
    answer = await context.elicit(NAME.message, NAME.schema, key="user_name")
    return f"Hello, {(answer.content or {}).get('name')}!"


@tool
async def test_input_required_result_sampling(context: InvocationContext) -> str:
    """Asks the model for a capital."""
    messages = [SamplingMessage("user", (Text("What is the capital of France?"),))]
    return said(await context.sample(messages, max_tokens=100, key="capital_question"))


@tool
async def test_input_required_result_list_roots(context: InvocationContext) -> str:
    """Names the client's folders."""
    return ", ".join(root.uri for root in await context.roots(key="client_roots"))


@tool
async def test_input_required_result_request_state(context: InvocationContext) -> str:
    """Confirms that the state came back."""
    answer = await context.elicit("Please confirm", form(ok="boolean"), key="confirm")
    return f"state-ok in round {context.round}: {answered(answer)}"


@tool
async def test_input_required_result_multiple_inputs(context: InvocationContext) -> str:
    """Asks three things at once."""
    answers = await context.ask(
        {"user_name": NAME, "greeting": question("Generate a greeting", 50), "client_roots": Roots()}
    )
    return ", ".join(answers)


@tool
async def test_input_required_result_multi_round(context: InvocationContext) -> str:
    """Asks one thing after the other."""
    name = await context.elicit("Step 1: What is your name?", form(name="string"), key="step1")
    color = await context.elicit("Step 2: What is your favorite color?", form(color="string"), key="step2")
    return f"{answered(name)}; {answered(color)}"


@tool
async def test_input_required_result_tampered_state(context: InvocationContext) -> str:
    """Asks once; the state of the question cannot be forged."""
    return answered(await context.elicit("Please confirm", form(ok="boolean"), key="confirm"))


@tool
async def test_input_required_result_capabilities(context: InvocationContext) -> str:
    """Asks only what the client can answer."""
    questions: dict[str, Question] = {}
    if "elicitation" in context.client_capabilities:
        questions["user_name"] = NAME
    if "sampling" in context.client_capabilities:
        questions["greeting"] = question("Generate a greeting", 50)
    return ", ".join(await context.ask(questions))


def said(answer: SamplingAnswer) -> str:
    return "\n".join(block.text for block in answer.content if isinstance(block, Text))


def answered(answer: ElicitationAnswer) -> str:
    return f"action={answer.action}, content={json.dumps(answer.content)}"


# --- schemas and headers ---------------------------------------------------------------------------------------------


class Echo:
    """An executor by hand: it gives its arguments back."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        return ToolExecutionResult.of_text(json.dumps(request.arguments))


JSON_SCHEMA_2020_12_TOOL = Tool(
    ToolSpecification(
        name="json_schema_2020_12_tool",
        description="Tool with JSON Schema 2020-12 features",
        parameters={
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        },
    ),
    Echo(),
)


@tool
def test_custom_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Takes an argument that travels in a header too."""
    return f"The region is {region}."


# --- a list that changes ---------------------------------------------------------------------------------------------


@tool
def added_while_running() -> str:
    """Comes and goes."""
    return "Here for now."


@tool
def test_trigger_tool_change() -> str:
    """Adds a tool, or takes it away again."""
    if "added_while_running" in TOOLS:
        TOOLS.remove("added_while_running")
        return "A tool was removed."
    TOOLS.add(added_while_running)
    return "A tool was added."


TOOLS = ToolBox(
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_progress,
    test_tool_with_logging,
    test_logging_tool,
    test_reconnection,
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_streaming_elicitation,
    test_missing_capability,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_tampered_state,
    test_input_required_result_capabilities,
    JSON_SCHEMA_2020_12_TOOL,
    test_custom_header,
    test_trigger_tool_change,
)
