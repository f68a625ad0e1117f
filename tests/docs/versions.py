"""Adds the documentation of this version to the branch of the site: ``make docs-release``.

    python -m tests.docs.versions

Each minor version has a folder, and the latest one is also in ``latest``. The switcher of the theme lists what is in
``versions.json``. At the root are a redirect to ``latest``, and the files that hosts and crawlers look for there.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.release import ROOT, VERSION, run

BRANCH, LATEST = "gh-pages", "latest"
AT_ROOT = ("404.html", "llms.txt", "llms-full.txt", "sitemap.xml")
"""Files of the latest version that are found only at the root of a site."""


def mike(folder: Path, *arguments: str) -> None:
    """Run mike, which starts the mkdocs of this environment, in a checkout."""
    programs = Path(sys.executable).parent
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    run(programs / "mike", *arguments, "--branch", BRANCH, cwd=folder, PATH=path)


def publish(folder: Path, version: str) -> None:
    """Build the documentation in a checkout, and commit it to its branch as a version and as the latest one.

    Patch versions share the folder of their minor version.
    """
    minor = ".".join(version.split(".")[:2])
    mike(folder, "deploy", "--title", version, "--update-aliases", minor, LATEST)
    mike(folder, "set-default", "--allow-empty", LATEST)
    with tempfile.TemporaryDirectory() as made:
        branch = Path(made) / BRANCH
        run("git", "worktree", "add", "--quiet", branch, BRANCH, cwd=folder)
        try:
            for name in AT_ROOT:
                shutil.copy(branch / LATEST / name, branch)
            run("git", "add", *AT_ROOT, cwd=branch)
            if run("git", "status", "--porcelain", cwd=branch):
                run("git", "commit", "--quiet", "--message", f"Files of {version} at the root", cwd=branch)
        finally:
            run("git", "worktree", "remove", "--force", branch, cwd=folder)


if __name__ == "__main__":
    publish(ROOT, VERSION)
    sys.stdout.write(f"the branch {BRANCH} has {VERSION}: git push origin {BRANCH}\n")
