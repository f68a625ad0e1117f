"""JSON for the page, from data of servers."""

from __future__ import annotations

import json
import math
from typing import Any


def page_json(data: Any) -> str:
    """Write JSON in ASCII that every browser can parse.

    Numbers that are not finite are null, as ``JSON.stringify`` writes them (ECMA-262, 25.5.2): servers send ``NaN``, or
    ``1e999``, and Python's parsers read them.
    """
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(data), allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value
