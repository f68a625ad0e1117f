"""Numbers as values of options."""

from __future__ import annotations

import click
import pytest

from bridge.cli.options import Number


@pytest.mark.parametrize("text", ["nan", "-NaN", "5s", "-1"])
def test_what_is_no_number_or_outside_of_the_range_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=text):
        Number(0).convert(text, None, None)


def test_a_number_is_taken() -> None:
    assert Number(0).convert("2.5", None, None) == 2.5
