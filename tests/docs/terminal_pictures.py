"""``python -m tests.docs.terminal_pictures``: pictures of commands in a terminal, for docs/command-line."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.docs.chat_api import running_chat_api
from tests.markdown import Document
from tests.processes import ROOT

PAGES = ROOT / "docs" / "command-line"
COLUMNS = 128
PICTURES = {
    "chat": (
        PAGES / "chat.md",
        "chat servers/calculator.py --model openai:gpt-5.1 --approve auto --once 'What is 1 + 2?'",
    ),
    "doctor": (PAGES / "doctor.md", "doctor notes.py"),
    "list": (PAGES / "list.md", "list --full trips.py"),
}
"""By name: the page with the files of the command, and its arguments."""
_TIME = re.compile(r"[0-9.]+ m?s\b")
_FONT = re.compile(r"@font-face \{[^}]*\}\s*")
"""Web fonts that Rich refers to, which a picture should not load."""


def picture_of(name: str) -> str:
    """Run a command, and return its output as SVG."""
    page, words = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder, running_chat_api() as model:
        model.will_reply({"add": {"a": 1, "b": 2}}, "It is 3.")
        (Path(folder) / "servers").symlink_to(ROOT / "servers")
        for block in Document(page).blocks("python"):
            if block.title is not None:
                (Path(folder) / block.title).write_text(block.text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "bridge", *shlex.split(words)],
            cwd=folder,
            env=os.environ
            | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT)}
            | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "a key"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,  # doctor ends with 1
        )
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    shown = _TIME.sub("12 ms", done.stdout)
    console.print(Text.from_ansi(f"$ bridge {words}\n{shown}".rstrip()))
    return _FONT.sub("", console.export_svg(title="bridge", unique_id=name))


if __name__ == "__main__":
    for each in PICTURES:
        (PAGES / "pictures" / f"{each}.svg").write_text(picture_of(each), encoding="utf-8")
