"""The pages on containers and Kubernetes can be followed: names agree across commands, excerpts and manifests."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.markdown import ROOT, Document

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOY = ROOT / "examples" / "deploy"
KUBERNETES = Document(ROOT / "docs" / "deploying" / "kubernetes.md")
CONTAINER = Document(ROOT / "docs" / "deploying" / "container.md")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def words_of(page: Document, program: str) -> list[list[str]]:
    """The words of each command of a program, in order."""
    return [words for each in page.commands() if (words := shlex.split(each.line))[0] == program]


def after(words: list[str], *flags: str) -> str:
    """The word after a flag."""
    return next(words[words.index(flag) + 1] for flag in flags if flag in words)


def values_of(node: Any, key: str) -> Iterator[Any]:
    """Every value of a key, at any depth."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key:
                yield value
            yield from values_of(value, key)
    elif isinstance(node, list):
        for each in node:
            yield from values_of(each, key)


def manifest(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8")) if each]


def applied() -> list[str]:
    """The manifests that the page applies, in order."""
    return [Path(after(words, "-f")).name for words in words_of(KUBERNETES, "kubectl") if words[1] == "apply"]


def deployments(name: str) -> list[str]:
    return [each["metadata"]["name"] for each in manifest(name) if each["kind"] == "Deployment"]


def test_the_image_is_built_pushed_and_run_under_one_name() -> None:
    build, push = words_of(KUBERNETES, "docker")
    image = after(build, "-t")
    assert (build[1], push) == ("build", ["docker", "push", image])
    assert image.rpartition(":")[2] == VERSION
    run = {
        each["image"]
        for name in applied()
        for kind in ("containers", "initContainers")
        for containers in values_of(manifest(name), kind)
        for each in containers
        if each["name"] == "bridge"
    }
    assert run == {image}
    assert image.rpartition("/")[0] in KUBERNETES.prose


def test_every_manifest_is_applied_and_its_deployment_awaited_by_name() -> None:
    assert sorted(applied()) == sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml"))
    named = {
        word.partition("/")[2]
        for words in words_of(KUBERNETES, "kubectl")
        for word in words
        if word.startswith("deployment/")
    }
    assert named <= {name for file in applied() for name in deployments(file)}
    assert {"app", "bridge"} <= named


def test_the_secret_exists_with_its_keys_before_a_manifest_needs_it() -> None:
    made: dict[str, set[str]] = {}
    for words in words_of(KUBERNETES, "kubectl"):
        if words[1:4] == ["create", "secret", "generic"]:
            given = [word for word in words if word.startswith("--from-")]
            made[words[4]] = {word.split("=")[1] for word in given}
        elif words[1] == "apply":
            document = manifest(Path(after(words, "-f")).name)
            for reference in values_of(document, "secretKeyRef"):
                assert reference["key"] in made[reference["name"]]
            for volume in values_of(document, "secret"):
                assert {item["key"] for item in volume["items"]} <= made[volume["secretName"]]
    assert made.keys() == {"bridge"}


def test_a_file_that_a_command_reads_was_written_by_an_earlier_one() -> None:
    written: set[str] = set()
    for command in KUBERNETES.commands():
        written |= set(re.findall(r"> (\S+)$", command.line))
        assert set(re.findall(r"--from-file=\w+=(\S+)", command.line)) <= written
    assert written == {"keys"}


def test_the_excerpt_of_the_sidecar_is_that_of_the_manifest() -> None:
    (shown,) = [block.text for block in KUBERNETES.blocks("yaml") if "initContainers" in block.text]
    whole = " ".join((DEPLOY / "kubernetes" / "sidecar.yaml").read_text(encoding="utf-8").split())
    for part in re.split(r"^ *# …$", shown, flags=re.MULTILINE):
        assert " ".join(part.split()) in whole
    (variable,) = set(re.findall(r'os\.environ\["(MCP_\w+)"\]', KUBERNETES.text))
    assert f"name: {variable}" in shown


def test_clients_of_the_standalone_server_use_its_service_its_port_and_its_label() -> None:
    parts = {each["kind"]: each for each in manifest("standalone.yaml")}
    service = parts["Service"]
    (url,) = set(re.findall(r"http://(bridge:\d+)/mcp", KUBERNETES.text))
    assert url == f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    labels = [each["matchLabels"] for each in values_of(parts["NetworkPolicy"]["spec"]["ingress"], "podSelector")]
    assert [f'{name}: "{value}"' in KUBERNETES.prose for label in labels for name, value in label.items()] == [True]


def test_the_container_is_run_and_extended_under_the_name_that_it_was_built_under() -> None:
    build, run = words_of(CONTAINER, "docker")[:2]
    name = after(build, "-t")
    assert run[-1] == name == f"bridge:{VERSION}"
    assert [
        line
        for block in CONTAINER.blocks("dockerfile")
        for line in re.findall(r"^FROM (\S+)$", block.text, re.MULTILINE)
    ] == [name]


def test_the_secrets_of_the_compose_file_are_written_before_it_is_started() -> None:
    lines = [command.line for command in CONTAINER.commands()]
    start = lines.index("docker compose up")
    folder = next(line.split()[1] for line in lines[:start] if line.startswith("cd "))
    written = {found[1] for line in lines[:start] if (found := re.search(r"> (\S+)$", line))}
    composed = yaml.safe_load((ROOT / folder / "compose.yaml").read_text(encoding="utf-8"))
    assert {str(Path(each["file"])) for each in composed["secrets"].values()} == written
    (tools, *_) = [volume.split(":")[0].removeprefix("./") for volume in composed["services"]["bridge"]["volumes"]]
    assert f"the folder `{tools}` there" in CONTAINER.sentences


@pytest.mark.parametrize("page", [KUBERNETES, CONTAINER], ids=repr)
def test_every_file_of_the_checkout_that_a_page_names_exists(page: Document) -> None:
    for name in re.findall(r"blob/main/(\S+?)\)", page.text):
        assert (ROOT / name).is_file()
