"""Sources, docstrings and contexts of signatures."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Annotated, Any, Generic

import pytest

from bridge import prompt, resource, tool
from bridge.errors import DefinitionError
from bridge.tools.context import InvocationContext  # noqa: TC001 - resolved at run time
from bridge.tools.function import found_in
from bridge.tools.schema.signature import signature_of, source_of
from tests.tools.schema.test_signature import T, forecast


def test_a_source_reads_like_a_place() -> None:
    class Counter:
        def add(self) -> None: ...

    line = forecast.__code__.co_firstlineno
    assert source_of(forecast) == f"function 'forecast' (test_signature.py:{line})"
    assert source_of(functools.partial(forecast, "Bonn")) == source_of(forecast)
    assert source_of(Counter().add).startswith("method 'Counter.add' (test_signature_docstrings.py:")
    assert source_of(len) == "function 'len'"


@pytest.mark.parametrize(
    ("docstring", "name", "hint"),
    [
        ("Add.\n\nArgs:\n    a: One.\n    aa: Two.", "aa", "did you mean 'a'?"),
        ("Add.\n\nParameters\n----------\nxyz : int\n    One.", "xyz", "remove it, or name a parameter"),
        ("Add.\n\n:param xyz: One.", "xyz", "remove it, or name a parameter"),
        ("Add.\n\n@param xyz: One.", "xyz", "remove it, or name a parameter"),
    ],
)
def test_a_docstring_that_describes_no_parameter_is_refused(docstring: str, name: str, hint: str) -> None:
    def add(a: int) -> None: ...

    def ping() -> None: ...

    add.__doc__ = ping.__doc__ = docstring
    with pytest.raises(DefinitionError) as raised:
        signature_of(add)
    assert re.sub(r" \(.*?\)", "", str(raised.value)) == (
        f"the docstring of function 'add' describes {name!r}, which is not one of its parameters; {hint}"
    )
    with pytest.raises(DefinitionError, match="which is not one of its parameters"):
        signature_of(ping)


def test_a_docstring_may_describe_what_callers_do_not_give() -> None:
    def ask(question: str, context: InvocationContext, key: str) -> None:
        """Ask.

        Args:
            question: What to ask.
            context: Injected.
            key: Fixed.
        """

    parameters = signature_of(functools.partial(ask, key="x")).parameters
    assert [(each.name, each.description) for each in parameters] == [("question", "What to ask.")]


def test_the_docstring_of_a_class_describes_its_constructor() -> None:
    class Greeter:
        """Greets.

        In a language.

        Args:
            language: The language.
        """

        def __init__(self, language: str) -> None: ...

        def __call__(self, name: str) -> None: ...

    assert signature_of(Greeter("en")).description == "Greets.\n\nIn a language."


def context_of(module: str, name: str = "Context") -> Any:
    """A class as that of another library, which need not be installed."""

    class Context(Generic[T]):
        pass

    Context.__module__, Context.__name__ = module, name
    return Context


FASTMCP: Any = context_of("fastmcp.server.context")
SDK: Any = context_of("mcp.server.mcpserver.context")


@pytest.mark.parametrize(
    "annotation",
    [
        FASTMCP,
        SDK,
        SDK[Any],
        FASTMCP | None,
        Annotated[FASTMCP, "the context"],
        type("Own", (FASTMCP,), {}),
        context_of("mcp.server.context", "ServerRequestContext"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("decorate", [tool, resource("greeting://"), prompt])
def test_a_context_of_another_library_is_refused(annotation: Any, decorate: Any) -> None:
    async def greet(ctx: Any = None) -> str:
        return "Hello"

    greet.__annotations__["ctx"] = annotation
    with pytest.raises(DefinitionError, match=r"the parameter 'ctx' of function 'greet' .* use InvocationContext"):
        found_in(decorate(greet))


def test_a_class_of_your_own_may_be_called_context() -> None:
    @dataclass
    class Context:
        place: str

    async def greet(context: Context) -> str:
        return context.place

    greet.__annotations__["context"] = Context
    assert [each.name for each in signature_of(greet).parameters] == ["context"]
