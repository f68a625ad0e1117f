"""The image, built once, and containers of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.image.dockerfile import ROOT, stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TRIAL = """
mount -t tmpfs tmpfs {0}
mkdir {0}/changes {0}/work {0}/root
mount -t overlay overlay -o lowerdir=/,upperdir={0}/changes,workdir={0}/work {0}/root
"""
START = """
set -e
root=$(mktemp -d -p {store})
points=$(mktemp -d -p {store})
chmod 755 $points
mkdir -p {points}
mount -t overlay overlay -o ro,lowerdir=$points:{changes}:/ $root
mount -t proc proc $root/proc
mount --bind /dev $root/dev
mount -t tmpfs -o mode=1777 tmpfs $root/tmp
{volumes}
exec chroot $root setpriv --reuid {user} --regid {group} --clear-groups --no-new-privs --bounding-set=-all \
    env --chdir={directory} "$@"
"""


@dataclass(frozen=True)
class Image:
    """The built image, and the process that keeps it mounted."""

    changes: Path
    builder: int

    @contextmanager
    def container(
        self,
        *command: str,
        entrypoint: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        volumes: Mapping[str, Path] | None = None,
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a container with a read-only root, the image's user and the entry point's first process.

        Args:
            command: Command, instead of the image's own.
            entrypoint: Entry point and command, instead of the image's.
            environment: Environment variables, beside the image's own.
            volumes: Mounted directories, by their places.
        """
        stage = stages()[-1]
        user, group = stage.last("USER").split(":")
        mounts = "\n".join(f"mount --bind {source} $root{target}" for target, source in (volumes or {}).items())
        script = START.format(
            changes=self.changes,
            store=self.changes.parent,
            points=" ".join(f"$points{target}" for target in ["/proc", *(volumes or {})]),
            volumes=mounts,
            user=user,
            group=group,
            directory=stage.last("WORKDIR"),
        )
        path = stage.environment["PATH"].replace(
            "$PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        )
        words = entrypoint or [*stage.command("ENTRYPOINT"), *(command or stage.command("CMD"))]
        process = subprocess.Popen(
            [
                "nsenter",
                "--target",
                str(self.builder),
                "--mount",
                "--wd=/",
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "sh",
                "-c",
                script,
                "sh",
                *words,
            ],
            env=stage.environment | {"PATH": path, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.kill(first_process(process), signal.SIGKILL)  # and all other processes of the container


def first_process(container: subprocess.Popen[str]) -> int:
    """Return the process ID of the container's process 1 on this machine."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text(encoding="ascii")
    return int(children)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """See `Image`."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("an image is built by root on Linux, with unshare: not here")
    trial = ["unshare", "--mount", "sh", "-ec", TRIAL.format(tmp_path_factory.mktemp("trial"))]
    if subprocess.run(trial, check=False).returncode:
        pytest.skip("this machine does not let overlays be mounted, of which the image's stages are made")
    store = tmp_path_factory.mktemp("image")
    log = store.with_suffix(".log")
    with (
        log.open("w") as words,
        subprocess.Popen(
            ["unshare", "--mount", sys.executable, "-m", "tests.image.build", str(store)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            text=True,
        ) as builder,
    ):
        assert builder.stdout is not None
        changes = Path(builder.stdout.readline().strip())
        assert changes.is_absolute(), log.read_text(encoding="utf-8")[-4000:]
        yield Image(changes, builder.pid)
