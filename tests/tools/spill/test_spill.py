"""Settings of a `Spill`, and what a model reads in its limits."""

from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError, ExecutionPolicy, InvocationContext, Tool, ToolSpecification
from bridge.tools import Spill, ToolPolicy
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.content import Text
from bridge.tools.spill.store import Bounds, KeptResult, ResultStoreError

pytestmark = pytest.mark.anyio
TOOL = Tool(ToolSpecification(name="log"), lambda request, context: "", policy=ToolPolicy())


class BrokenStore:
    """A store that cannot be used."""

    is_shared = False

    async def add(self, result_id: str, kept: KeptResult, bounds: Bounds) -> None:
        raise ResultStoreError("the disk is full")

    async def find(self, result_id: str) -> KeptResult | None:
        raise ResultStoreError("the disk is full")

    async def forget(self, *, owner: str | None = None, session: str | None = None) -> None:
        raise ResultStoreError("the disk is full")

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Spill(chars=0), "chars of Spill must be a whole number of at least 1, or None, not 0"),
        (lambda: Spill(preview_chars=0), "preview_chars of Spill must be a whole number of at least 1, not 0"),
        (lambda: Spill(max_bytes=-1), "max_bytes of Spill must be a whole number of at least 1, not -1"),
        (lambda: Spill(mode="drop"), "the mode of a Spill must be 'keep' or 'measure', not 'drop'"),  # type: ignore[arg-type]
        (lambda: ToolPolicy(spill_chars=0), "spill_chars must be a whole number of at least 1, or None, not 0"),
    ],
)
def test_invalid_settings_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert str(caught.value) == problem


def test_a_policy_takes_no_other_spill() -> None:
    wrong: Any = 4000
    with pytest.raises(DefinitionError, match="spill"):
        ExecutionPolicy(spill=wrong)


async def test_a_result_that_the_store_refuses_is_shortened_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    spill = Spill(chars=100, store=BrokenStore())
    fitted = await spill.fitted(TOOL, ToolExecutionResult.of_text("x" * 1000), InvocationContext())
    assert fitted.model_content is not None
    (block,) = fitted.model_content
    assert isinstance(block, Text)
    assert "they could not be kept: ask for less" in block.text
    assert fitted.text == "x" * 1000
    assert "a result of 'log' was not kept: the disk is full" in caplog.text


async def test_a_preview_is_within_the_limit() -> None:
    spill = Spill(chars=10, preview_chars=3000)
    fitted = await spill.fitted(TOOL, ToolExecutionResult.of_text("0123456789abcdef"), InvocationContext())
    head, _, rest = fitted.model_text.partition("\n\n[… ")
    assert (head, rest.rpartition(" …]\n\n")[2]) == ("0123456", "def")
    await spill.aclose()
