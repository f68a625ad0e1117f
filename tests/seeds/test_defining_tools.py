"""Defining tools: methods that can be tools, their parameters, return types and descriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import pytest

from bridge import (
    DefinitionError,
    InvocationContext,
    NameClashError,
    P,
    ToolBox,
    ToolExecutionRequest,
    execute,
    tool,
    tools_from,
)
from tests.seeds.services import assistant, call, told

pytestmark = pytest.mark.anyio

HOLDERS = {"of a class", "of an object", "private"}


class Unit(Enum):
    CELSIUS = "CELSIUS"
    FAHRENHEIT = "FAHRENHEIT"


@dataclass
class Person:
    """A person with children."""

    name: str
    children: list[Person] = field(default_factory=list)


@dataclass
class User:
    name: str
    email: str | None = None


@dataclass
class Condition:
    column: str
    """Column to look at"""


@dataclass
class Query:
    """Query to execute"""

    select: list[str]
    """Fields to select"""
    where: list[Condition]
    """Conditions to filter on"""


async def run(source: object, **arguments: Any) -> str:
    (made,) = tools_from(source)
    return (await execute(ToolBox(made), ToolExecutionRequest(made.name, arguments), InvocationContext())).text


def schema_of(source: object) -> Any:
    (made,) = tools_from(source)
    return made.specification.parameters


async def test_a_search_and_a_page_are_tools() -> None:
    @tool("Searches Google for relevant URLs, given the query")
    def search_google(query: Annotated[str, P("search query")]) -> list[str]:
        return [f"https://example.org/?q={query}"]

    @tool("Returns the content of a web page, given the URL")
    def get_web_page_content(url: Annotated[str, P("URL of the page")]) -> str:
        return f"The page at {url}"

    searched = call("search_google", query="tools")
    opened = call("get_web_page_content", url="https://example.org/?q=tools")
    service, model = assistant(searched, opened, "Read.", tools=[search_google, get_web_page_content])
    assert (await service.chat("Read about tools")).content == "Read."
    assert told(model) == ['["https://example.org/?q=tools"]', "The page at https://example.org/?q=tools"]


async def test_methods_of_any_kind_and_visibility_are_tools() -> None:
    class Tools:
        @staticmethod
        @tool
        def of_a_class() -> str:
            return "of a class"

        @tool
        def of_an_object(self) -> str:
            return "of an object"

        @tool
        def _private(self) -> str:
            return "private"

    box = ToolBox(Tools())
    results = {(await execute(box, ToolExecutionRequest(each.name), InvocationContext())).text for each in box}
    assert results == HOLDERS


def test_parameters_may_have_many_types() -> None:
    @tool
    def everything(
        count: int,
        ratio: float,
        name: str,
        person: Person,
        unit: Unit,
        tags: list[str],
        units: set[Unit],
        amounts: Annotated[dict[str, int], P("amount of each product")],
    ) -> None: ...

    schema = schema_of(everything)
    properties = schema["properties"]
    assert schema["required"] == list(properties)
    kinds = {name: properties[name].get("type") for name in ("count", "ratio", "name", "tags", "units", "amounts")}
    assert kinds == {
        "count": "integer",
        "ratio": "number",
        "name": "string",
        "tags": "array",
        "units": "array",
        "amounts": "object",
    }
    assert properties["amounts"]["additionalProperties"] == {"type": "integer"}
    assert properties["amounts"]["description"] == "amount of each product"


def test_a_tool_may_take_nothing() -> None:
    @tool
    def now() -> str:
        return "noon"

    assert schema_of(now)["properties"] == {}


def test_every_parameter_is_required_unless_it_says_otherwise() -> None:
    @tool
    def get_temperature(
        location: str, unit: Annotated[Unit | None, P("Unit of temperature", required=False)]
    ) -> None: ...

    schema = schema_of(get_temperature)
    assert schema["required"] == ["location"]
    assert schema["properties"]["unit"]["description"] == "Unit of temperature"


async def test_an_omitted_parameter_has_its_default_and_a_required_one_is_an_error() -> None:
    @tool
    def get_temperature(location: str, unit: Unit = Unit.CELSIUS, day: str | None = None) -> str:
        return f"{location}, {unit.value}, {day}"

    assert await run(get_temperature, location="Oslo") == "Oslo, CELSIUS, None"
    assert "location: is required" in await run(get_temperature, unit="CELSIUS")


def test_two_tools_of_one_name_are_refused_unless_one_is_renamed() -> None:
    class Others:
        @tool
        def add(self) -> None: ...

        @tool(name="add_days")
        def add_up(self) -> None: ...

    @tool
    def add() -> None: ...

    with pytest.raises(NameClashError, match=r"one from function .*add.*, one from method .*Others\.add"):
        ToolBox(add, Others())
    assert [each.name for each in ToolBox(Others())] == ["add", "add_days"]


async def test_a_field_of_a_nested_object_may_be_optional() -> None:
    @tool
    def add(user: User) -> str:
        return repr(user)

    assert "'required': ['name']" in str(schema_of(add))
    assert await run(add, user={"name": "Klaus"}) == "User(name='Klaus', email=None)"


async def test_a_parameter_may_be_recursive() -> None:
    @tool
    def count(person: Person) -> int:
        def counted(each: Person) -> int:
            return 1 + sum(map(counted, each.children))

        return counted(person)

    family = {"name": "Ada", "children": [{"name": "Bob"}, {"name": "Cy", "children": [{"name": "Di"}]}]}
    assert "$ref" in str(schema_of(count))
    assert await run(count, person=family) == "4"


def test_classes_and_fields_are_described() -> None:
    @tool
    def execute_query(query: Query) -> None: ...

    shown = str(schema_of(execute_query))
    for text in ("Query to execute", "Fields to select", "Conditions to filter on", "Column to look at"):
        assert f"'description': '{text}'" in shown


async def test_nothing_returned_is_success() -> None:
    @tool
    def save() -> None: ...

    assert await run(save) == "Success"


async def test_text_is_returned_as_it_is() -> None:
    @tool
    def say() -> str:
        return 'as "it" is'

    assert await run(say) == 'as "it" is'


async def test_an_empty_text_is_a_result() -> None:
    @tool
    def clear() -> str:
        return ""

    assert await run(clear) == ""


async def test_anything_else_is_returned_as_json() -> None:
    @tool
    def person() -> Person:
        return Person("Ada", [Person("Bob")])

    assert await run(person) == '{"name":"Ada","children":[{"name":"Bob","children":[]}]}'


def test_a_name_and_a_description_are_optional() -> None:
    @tool(name="sum", description="Sums 2 given numbers")
    def add_up(a: int, b: int) -> int:
        return a + b

    @tool
    def multiply(a: int, b: int) -> int:
        return a * b

    named, unnamed = (each.specification for each in ToolBox(add_up, multiply))
    assert (named.name, named.description) == ("sum", "Sums 2 given numbers")
    assert (unnamed.name, unnamed.description) == ("multiply", "multiply")


def test_metadata_is_kept_with_the_specification() -> None:
    @tool(metadata={"cache_control": {"type": "ephemeral"}})
    def look() -> None: ...

    (made,) = tools_from(look)
    assert made.specification.metadata == {"cache_control": {"type": "ephemeral"}}
    text: Any = '{"cache_control": {"type": "ephemeral"}}'
    with pytest.raises(DefinitionError, match="metadata"):
        tool(metadata=text)(look)


async def test_a_record_of_several_fields_is_one_parameter() -> None:
    @dataclass
    class SearchQuery:
        keyword: str
        max_results: int
        include_archived: bool

    class SearchTools:
        def __init__(self) -> None:
            self.queries: list[SearchQuery] = []

        @tool("Search documents with the given criteria")
        def search_documents(self, query: SearchQuery) -> list[str]:
            self.queries.append(query)
            return ["doc1", "doc2", "doc3"]

    tools = SearchTools()
    wanted = call("search_documents", query={"keyword": "Java", "max_results": 5, "include_archived": True})
    service, model = assistant(wanted, "Found.", tools=[tools])
    await service.chat("Find 5 documents about 'Java' including archived ones")
    assert tools.queries == [SearchQuery("Java", 5, include_archived=True)]
    assert told(model) == ['["doc1","doc2","doc3"]']
