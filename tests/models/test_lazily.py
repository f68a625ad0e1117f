from __future__ import annotations

import subprocess
import sys

import pytest

UNWANTED = {"openai", "anthropic", "boto3", "botocore", "httpx2", "httpx", "mcp", "starlette"}


@pytest.mark.parametrize("name", ["openai", "anthropic", "bedrock", "scripted", "prompted"])
def test_an_adapter_s_module_loads_no_provider_s_sdk(name: str) -> None:
    program = f"import sys, bridge.models.{name}; print(*({UNWANTED} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []
