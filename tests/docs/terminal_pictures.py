"""``python -m tests.docs.terminal_pictures``: pictures of commands in a terminal, for the documentation."""

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

from bridge.cli.install.clients import CLIENTS as CLIENTS_BY_NAME
from tests import forks
from tests.docs.chat_api import running_chat_api
from tests.markdown import Document
from tests.processes import ROOT

PAGES = ROOT / "docs" / "command-line"
CLIENTS = ROOT / "docs" / "connect"
COLUMNS, NARROW = 128, 100
HOME = "/home/ada"
"""Home folder in pictures."""
PICTURES = {
    "chat": (
        PAGES / "chat.md",
        "chat servers/calculator.py --model openai:gpt-5.1 --approve auto --once 'What is 1 + 2?'",
    ),
    "doctor": (PAGES / "doctor.md", "doctor notes.py"),
    "list": (PAGES / "list.md", "list --full trips.py"),
    **{
        name: (CLIENTS / f"{name}.md", f"install tools.py --client {name} --yes")
        for name in CLIENTS_BY_NAME
        if name != "mcp-json"
    },
    "chatgpt": (CLIENTS / "chatgpt.md", "serve tools.py --transport http --port 8000"),
}
"""By name: the page with the files of the command, and its arguments."""
_TIME = re.compile(r"[0-9.]+ m?s\b")
_PORT = re.compile(r":\d{4,5}/")
_FONT = re.compile(r"@font-face \{[^}]*\}\s*")
"""Web fonts that Rich refers to, which a picture should not load."""


def path_of(name: str) -> Path:
    """Return the file of a picture."""
    return PICTURES[name][0].parent / "pictures" / f"{name}.svg"


def picture_of(name: str) -> str:
    """Run a command, and return its output as SVG."""
    page, words = PICTURES[name]
    columns = COLUMNS if page.parent == PAGES else NARROW
    with tempfile.TemporaryDirectory() as made, running_chat_api() as model:
        folder = Path(made).resolve()
        model.will_reply({"add": {"a": 1, "b": 2}}, "It is 3.")
        (folder / "servers").symlink_to(ROOT / "servers")
        for block in Document(page).blocks("python"):
            if block.title is not None:
                (folder / block.title).write_text(block.text, encoding="utf-8")
        arguments = [word if word != "8000" else "0" for word in shlex.split(words)]
        ours, theirs = os.pipe()  # one for both streams, so that lines are in order
        environment = os.environ | {
            "FORCE_COLOR": "1",
            "COLUMNS": str(columns),
            "HOME": str(folder),
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "a key",
            "XDG_CONFIG_HOME": "",
            "XDG_STATE_HOME": "",
            "CODEX_HOME": "",
        }
        streams = (subprocess.DEVNULL, theirs, theirs)
        with (
            open(ours, encoding="utf-8") as stream,  # noqa: PTH123 - a descriptor, not a path
            forks.popen(["-m", "bridge", *arguments], cwd=folder, env=environment, streams=streams) as process,
        ):
            os.close(theirs)
            if arguments[0] == "serve":
                output = stream.readline() + stream.readline()
                process.terminate()
            else:
                output = stream.read()
    for path, shown in ((str(folder), HOME), (sys.executable, f"{HOME}/.venv/bin/python")):
        output = output.replace(path, shown)
    console = Console(record=True, width=columns, file=io.StringIO())
    output = _PORT.sub(":8000/", _TIME.sub("12 ms", output))
    console.print(Text.from_ansi(f"$ bridge {words}\n{output}".rstrip()))
    return _FONT.sub("", console.export_svg(title="bridge", unique_id=name))


def main() -> None:
    """Write all pictures."""
    for name in PICTURES:
        path_of(name).parent.mkdir(exist_ok=True)
        path_of(name).write_text(picture_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
