"""Environment files: variables for a child, one to a line, as python-dotenv reads them.

What a value says is taken as it stands: ``${VAR}`` in the file is plain text.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path


def read_environment_file(path: str) -> dict[str, str]:
    """The variables of a file; a name without ``=`` is left out.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not UTF-8 text, or its path is none.
    """
    from dotenv import dotenv_values  # noqa: PLC0415 - only for those who have such a file

    text = Path(path).read_text(encoding="utf-8-sig")
    if "\0" in text:
        raise ValueError("a variable cannot hold a NUL character")
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}
