"""The switch: whether anything is observed in this process. Off, a hook costs one look at a variable.

A server looks when it is built, a connection when it is opened: switch on before.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.telemetry.observer import Observer

_observer: Observer | None = None


def observer() -> Observer | None:
    """Who observes; None while nobody does."""
    return _observer


def switch_on(new: Observer) -> None:
    """Have everything observed from now on."""
    global _observer  # noqa: PLW0603 - one process has one telemetry, as OpenTelemetry's own providers
    _observer = new


def switch_off() -> None:
    """Have nothing observed any more."""
    global _observer  # noqa: PLW0603 - as above
    _observer = None


@contextmanager
def switched_on(new: Observer) -> Iterator[Observer]:
    """Have everything observed in this block."""
    before = _observer
    switch_on(new)
    try:
        yield new
    finally:
        if before is None:
            switch_off()
        else:
            switch_on(before)
