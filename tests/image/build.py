"""Builds the Dockerfile without an engine: a stage is an overlay of this machine's files, in which its lines are run.

It runs as root in a mount namespace of its own, ``unshare --mount python -m tests.image.build STORE``, and all mounts
end with it, when its standard input closes. When the image is built, it prints the directory with the changes of the
last stage. This machine replaces the base image, whose contents are not tested.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from tests.image.dockerfile import ROOT, Stage, stages

PYTHON_DIRECTORY = Path(sys.base_prefix) / "bin"
PATH = f"{PYTHON_DIRECTORY}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.endswith(("_PROXY", "_proxy"))
}


class Build:
    """The stages built so far."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._roots: dict[str, Path] = {}

    def stage(self, stage: Stage) -> Path:
        """Build one stage; return the directory of its changes."""
        changes, work, root = (self._store / stage.name / part for part in ("changes", "work", "root"))
        for directory in (changes, work, root):
            directory.mkdir(parents=True)
        mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={changes},workdir={work}", root)
        mount("-t", "proc", "proc", root / "proc")
        mount("-t", "tmpfs", "tmpfs", root / "tmp")
        for parent in [*PYTHON_DIRECTORY.parents][:-1]:  # the image's user needs access to Python
            (root / parent.relative_to("/")).chmod(0o755)
        self._roots[stage.name] = root
        directory = Path("/")
        for kind, value in stage.instructions:
            if kind == "WORKDIR":
                directory = Path(value)
                (root / directory.relative_to("/")).mkdir(parents=True, exist_ok=True)
            elif kind == "COPY":
                self._copy(shlex.split(value), root, directory)
            elif kind == "RUN":
                run(root, directory, value)
        return changes

    def _copy(self, words: list[str], root: Path, directory: Path) -> None:
        flags = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--"))
        *sources, target = [word for word in words if not word.startswith("--")]
        origin = self._roots[flags["from"]] if "from" in flags else ROOT
        to = root / (directory / target).relative_to("/")
        for source in sources:
            path = origin / source.lstrip("/")
            if origin == ROOT and not is_sent(source):
                raise FileNotFoundError(f".dockerignore keeps {source} from the build")
            if path.is_dir():
                shutil.copytree(
                    path,
                    to,
                    symlinks=True,
                    dirs_exist_ok=True,
                    ignore=None if "from" in flags else shutil.ignore_patterns("__pycache__"),
                )
                continue
            into = to / path.name if target.endswith("/") else to
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, into)
            if "chmod" in flags:
                into.chmod(int(flags["chmod"], 8))


def is_sent(source: str) -> bool:
    """Return True if a file of the project is sent to the builder."""
    sent = True
    top = source.removeprefix("./").split("/")[0]
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if fnmatch(top, line.removeprefix("!")):
            sent = line.startswith("!")
    return sent


def mount(*words: str | Path) -> None:
    """Mount a directory in this namespace."""
    subprocess.run(["mount", *words], check=True, stdout=sys.stderr)


def run(root: Path, directory: Path, script: str) -> None:
    """Run a line of the Dockerfile as the builder does."""
    line = f"cd {shlex.quote(str(directory))} && {script}"
    environment = ENVIRONMENT | {"PATH": PATH, "HOME": "/tmp", "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    subprocess.run(["chroot", root, "/bin/sh", "-c", line], check=True, env=environment, stdout=sys.stderr)


def main() -> None:
    """Build, print the path of the image, and keep it until standard input closes."""
    store = Path(sys.argv[1])
    mount("-t", "tmpfs", "tmpfs", store)
    build = Build(store)
    changes = [build.stage(stage) for stage in stages()]
    sys.stdout.write(f"{changes[-1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
