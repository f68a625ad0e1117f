from __future__ import annotations

import pytest

from bridge.client.transports.process import child_environment

ENVIRON = {"PATH": "/bin", "HOME": "/root", "SECRET": "1", "OF_MINE": "2", "SHELL": "() { :; }"}


@pytest.mark.parametrize(
    ("inherit", "inherited"),
    [
        ("minimal", {"PATH": "/bin", "HOME": "/root"}),
        ("all", {"PATH": "/bin", "HOME": "/root", "SECRET": "1", "OF_MINE": "2"}),
        (("OF_MINE", "NOT_THERE"), {"PATH": "/bin", "HOME": "/root", "OF_MINE": "2"}),
    ],
)
def test_a_child_inherits_what_is_named_and_never_a_function_of_a_shell(
    inherit: object, inherited: dict[str, str]
) -> None:
    assert child_environment(inherit, {}, ENVIRON) == inherited  # type: ignore[arg-type]  # parametrized


def test_what_is_added_is_stronger_than_what_is_inherited() -> None:
    assert child_environment("minimal", {"PATH": "/mine"}, ENVIRON) == {"PATH": "/mine", "HOME": "/root"}


def test_by_default_it_is_this_processs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_MINE", "2")
    assert child_environment(("OF_MINE",), {})["OF_MINE"] == "2"
