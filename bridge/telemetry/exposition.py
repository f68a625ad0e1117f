"""Exposition: the metrics of several processes as one text for Prometheus."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAMPLE = re.compile(r"(?P<name>[^\s{]+)(?:\{(?P<labels>.*)\})?(?P<value> [^{}]*)\Z")


def joined(texts: Mapping[str, str], *, label: str) -> str:
    """The metrics of several processes, each told apart by a label.

    They are not summed: each process counts from 0 when it starts again, which Prometheus sees, and makes good, in a
    series of its own alone.

    Args:
        texts: What each has counted, in Prometheus' text format, by the value of the label.
        label: The label's name.

    Returns:
        One text, in which what belongs to one metric stands together, as the format wants it.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for value, text in texts.items():
        family = ""
        for line in text.split("\n"):  # and at nothing else: a label may hold whatever else ends lines in Unicode
            if line.startswith("#"):
                family = line.split(" ", 3)[2] if line.startswith(("# HELP ", "# TYPE ")) else family
                comments, _ = families.setdefault(family, ([], []))
                if line not in comments:
                    comments.append(line)
            elif line:
                families.setdefault(family, ([], []))[1].append(_labelled(line, f'{label}="{value}"'))
    return "".join(f"{line}\n" for comments, samples in families.values() for line in (*comments, *samples))


def _labelled(sample: str, label: str) -> str:
    found = _SAMPLE.match(sample)
    assert found is not None, sample
    return f"{found['name']}{{{','.join(filter(None, (label, found['labels'])))}}}{found['value']}"
