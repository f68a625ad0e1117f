"""The deployment examples: each is accepted by the tool that reads it, and has only options of the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.image.dockerfile import stages

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DEADLINE_SECONDS = 60


def judged_by(program: str, *arguments: str) -> str:
    """Run a program of the tests' environment successfully; return its output."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def parts_of(manifest: Path) -> dict[str, Any]:
    """Return the resources of a manifest by their kind."""
    return {part["kind"]: part for part in yaml.safe_load_all(manifest.read_text(encoding="utf-8"))}


def containers_of(manifest: Path) -> list[dict[str, Any]]:
    """Return the containers of a manifest that run the image."""
    pod = parts_of(manifest)["Deployment"]["spec"]["template"]["spec"]
    return [each for each in pod.get("initContainers", []) + pod["containers"] if each["name"] == "bridge"]


def variables() -> set[str]:
    """Return the environment variables that ``bridge serve`` reads."""
    return {option.envvar for option in import_module("bridge.cli.serve").command.params if option.envvar}


def test_a_worker_runs_the_tasks_of_the_standalone_server() -> None:
    standalone, worker = (containers_of(DEPLOY / "kubernetes" / f"{name}.yaml")[0] for name in ("standalone", "worker"))
    assert worker["args"] == ["worker"]
    settings = [{each["name"]: each for each in container["env"]} for container in (standalone, worker)]
    for name in ("BRIDGE_NAME", "BRIDGE_REDIS_URL"):
        assert settings[0][name] == settings[1][name]
    read = {option.envvar for option in import_module("bridge.cli.worker").command.params if option.envvar}
    assert settings[1].keys() <= read


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("compose.yaml", "bridge"),
        ("compose.replicas.yaml", "first"),
        ("compose.replicas.yaml", "second"),
        ("credentials/compose.yaml", "gateway"),
    ],
)
def test_a_compose_file_is_one(file: str, name: str) -> None:
    judged_by("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(DEPLOY / file))
    service = yaml.safe_load((DEPLOY / file).read_text(encoding="utf-8"))["services"][name]
    assert (DEPLOY / file).parent.joinpath(service["build"]).resolve() == ROOT
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_is_what_kubernetes_takes(manifest: Path) -> None:
    judged_by("kubernetes-validate", "--strict", str(manifest))


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_a_container_has_no_rights_and_its_probes_a_port(manifest: Path) -> None:
    (container,) = containers_of(manifest)
    user, group = map(int, stages()[-1].last("USER").split(":"))
    context = container["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (user, group)
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert ports["admin"] == environment["BRIDGE_ADMIN_PORT"]
    for probe, path in (("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "admin"}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_what_is_deployed_is_protected_and_grows_with_the_calls_in_its_hands(manifest: Path) -> None:
    parts = parts_of(manifest)
    deployment = parts["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    policy = parts["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == parts["PodDisruptionBudget"]["spec"]["selector"] == {"matchLabels": labels}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    pod = deployment["spec"]["template"]["spec"]
    ports = {
        port["name"]: port["containerPort"]
        for container in pod.get("initContainers", []) + pod["containers"]
        for port in container["ports"]
    }
    let_in = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    is_worker = manifest.stem == "worker"  # it serves no tools
    assert [ports.get(port, port) for port in let_in] == [*([] if is_worker else [ports["http"]]), ports["admin"]]
    scaler = parts["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert (
        "replicas" not in deployment["spec"]
    )  # or each application of the manifest would undo the autoscaler's change
    assert scaler["minReplicas"] > parts["PodDisruptionBudget"]["spec"]["minAvailable"]
    (metric,) = scaler["metrics"]
    in_flight = import_module("bridge.telemetry.conventions").IN_FLIGHT
    assert metric["pods"]["metric"]["name"] == in_flight.replace(".", "_")


@pytest.mark.parametrize("name", ["standalone", "worker"])
def test_what_is_ended_is_drained_before_it_is_killed(name: str) -> None:
    pod = parts_of(DEPLOY / "kubernetes" / f"{name}.yaml")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    drain = float(environment.get("BRIDGE_DRAIN_DELAY", 0)) + float(environment["BRIDGE_DRAIN_TIMEOUT"])
    assert drain < 30 < pod["terminationGracePeriodSeconds"]


def test_what_is_set_in_an_environment_is_read_by_serve() -> None:
    said: set[str] = set()
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        said |= set(re.findall(r"\bBRIDGE_[A-Z_]+", path.read_text(encoding="utf-8")))
    state_folder = import_module("bridge.private_files").STATE_VARIABLE
    assert {"BRIDGE_API_KEYS", "BRIDGE_ADMIN_PORT"} <= said <= variables() | {state_folder}


def test_the_configurations_in_manifests_are_read_as_any_other(tmp_path: Path) -> None:
    for manifest in (each for each in MANIFESTS if each.stem != "worker"):
        file = tmp_path / "mcp.json"
        file.write_text(parts_of(manifest)["ConfigMap"]["data"]["mcp.json"], encoding="utf-8")
        servers = import_module("bridge").load_config(file).servers
        assert [(name, server.required) for name, server in servers.items()] == [("inventory", True)]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx, which judges its configuration, is not installed")
def test_the_configuration_of_nginx_is_one() -> None:
    done = subprocess.run(
        ["nginx", "-t", "-q", "-c", str(DEPLOY / "nginx.conf")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_of_systemd_keeps_state_where_the_service_may_write() -> None:
    text = (DEPLOY / "bridge.service").read_text(encoding="utf-8")
    (folder,) = re.findall(r"^StateDirectory=(.+)$", text, re.MULTILINE)
    assert f"BRIDGE_STATE_DIR=%S/{folder}" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd, which judges its units, is not here")
def test_the_unit_of_systemd_is_one(tmp_path: Path) -> None:
    program = tmp_path / "bridge"
    program.symlink_to("/bin/true")
    unit = tmp_path / "bridge.service"
    text = (DEPLOY / "bridge.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/bridge/bin/bridge", str(program)), encoding="utf-8")
    shutil.copy(DEPLOY / "bridge.socket", tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit), str(tmp_path / "bridge.socket")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_entry_of_the_registry_is_this_package() -> None:
    entry = json.loads((DEPLOY / "server.json").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (package,) = entry["packages"]
    assert entry["version"] == package["version"] == project["version"]
    assert package["identifier"] == project["name"]
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    assert {each["name"] for each in package["environmentVariables"]} <= variables()
    # The registry accepts an entry if the description of its package names the entry.
    assert f"<!-- mcp-name: {entry['name']} -->" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_what_clients_of_the_registry_run_is_the_command(tmp_path: Path) -> None:
    entry = json.loads((DEPLOY / "server.json").read_text(encoding="utf-8"))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    (package,) = entry["packages"]
    # Clients run `uvx PACKAGE@VERSION ARGUMENTS`, and uvx runs the command with the package's name.
    assert (package["runtimeHint"], package.get("runtimeArguments")) == ("uvx", None)
    assert scripts[package["identifier"]] == scripts["bridge"]
    tools = tmp_path / "tools.py"
    tools.write_text("from bridge import tool\n@tool\ndef add(a: int) -> int: return a\n", encoding="utf-8")
    arguments = [each.get("value", str(tools)) for each in package["packageArguments"]]
    done = subprocess.run(
        [sys.executable, "-m", "bridge", *arguments],
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n",
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert json.loads(done.stdout)["id"] == 1, done.stderr
