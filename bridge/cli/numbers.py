"""Numbers: what options take, called in the help and in messages what people call it."""

from __future__ import annotations

import click


class WholeNumber(click.IntRange):
    """A whole number within a range."""

    name = "integer"


class Number(click.FloatRange):
    """A number within a range."""

    name = "number"
