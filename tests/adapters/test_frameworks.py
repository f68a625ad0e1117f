"""The frameworks are imported when they are used."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

import bridge.adapters

PROGRAM = """
    import json, sys
    for package in ("langchain_core", "langchain", "agents", "pydantic_ai"):
        sys.modules[package] = None
    import bridge.adapters
    from bridge.adapters import *
    import inspect, pydoc
    assert {"anthropic_tools", "openai_tools"} <= {name for name, _ in inspect.getmembers(bridge.adapters)}
    pydoc.render_doc(bridge.adapters)

    failures = {}
    for name in ("langchain_tools", "openai_agents_tools", "pydantic_ai_toolset"):
        try:
            getattr(bridge.adapters, name)
        except bridge.errors.MissingExtraError as error:
            failures[name] = str(error), error.extra
    print(json.dumps([failures, sorted({"openai", "anthropic"} & sys.modules.keys())]))
"""


def test_a_missing_framework_is_an_error_that_names_its_package() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, timeout=60, check=True
    )
    failures, imported = json.loads(run.stdout)
    assert failures == {
        "langchain_tools": ["langchain_tools needs the package 'langchain-core': pip install langchain-core", None],
        "openai_agents_tools": [
            "openai_agents_tools needs the package 'openai-agents': pip install openai-agents",
            None,
        ],
        "pydantic_ai_toolset": [
            "pydantic_ai_toolset needs the package 'pydantic-ai-slim': pip install pydantic-ai-slim",
            None,
        ],
    }
    assert imported == []


def test_every_public_name_is_there() -> None:
    for name in bridge.adapters.__all__:
        assert hasattr(bridge.adapters, name)
        assert name in dir(bridge.adapters)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = getattr(bridge.adapters, "nothing")  # noqa: B009 - a type checker would refuse the plain form
