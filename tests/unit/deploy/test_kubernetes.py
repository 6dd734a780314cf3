"""The Kubernetes manifests: each fits the strict schema of its kind, and they fit each other."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints
from zipfile import ZipFile

import pytest
import yaml

from croupier.agent.config import AgentConfig
from croupier.ctl.certificates.certificate import Leaf, utc_now
from croupier.ctl.certificates.directory import AuthorityDirectory
from croupier.master.config import MasterConfig
from croupier.net.certificate import parse_certificates
from tests.harness.debian import found
from tests.harness.wheels import wheel

MANIFESTS = Path(__file__).resolve().parents[3] / "deploy/kubernetes"
PIN = "kubernetes-validate==1.37.0"
HASH = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"
# The oldest and the newest release of Kubernetes that are checked.
RELEASES = ["v1.30.0", "v1.36.0"]

Object = dict[str, Any]


@cache
def schemas() -> ZipFile:
    return wheel(PIN, HASH)


@cache
def validator(release: str, file: str) -> Any:
    """Return a validator of the schema in `file`; schemas refer to each other by file name."""
    jsonschema = importlib.import_module("jsonschema")
    referencing = importlib.import_module("referencing")
    folder = f"kubernetes_validate/kubernetes-json-schema/{release}-local-strict"

    def retrieve(uri: str) -> Any:
        contents = json.loads(schemas().read(f"{folder}/{uri.rpartition('/')[2]}"))
        specification = importlib.import_module("referencing.jsonschema").DRAFT7
        return referencing.Resource.from_contents(contents, default_specification=specification)

    registry = referencing.Registry(retrieve=cache(retrieve))
    return jsonschema.Draft7Validator({"$ref": f"https://schemas/{file}"}, registry=registry)


def schema_file(manifest: Object) -> str:
    group, _, version = manifest["apiVersion"].rpartition("/")
    parts = [manifest["kind"].lower(), *([group.split(".")[0]] if group else []), version]
    return "-".join(parts) + ".json"


def manifests(folder: str) -> list[Object]:
    chosen = yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())
    return [
        manifest
        for name in chosen["resources"]
        if name.endswith(".yaml")
        for manifest in yaml.safe_load_all((MANIFESTS / folder / name).read_text())
    ]


FOLDERS = ("base", "etcd", "backup", "renewal", "overlays/example")
ALL = [(folder, each) for folder in FOLDERS for each in manifests(folder)]


def of_kind(*kinds: str) -> list[Object]:
    return [each for _, each in ALL if each["kind"] in kinds]


WORKLOADS = of_kind("StatefulSet", "DaemonSet")
JOBS = of_kind("CronJob")


def pod_of(manifest: Object) -> Object:
    """Return the specification of the pods of a workload or a job."""
    spec = manifest["spec"]
    template = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]
    pod: Object = template["spec"]
    return pod


def faults_of(release: str, found: list[Object]) -> list[str]:
    """Return what does not fit the schema of its kind."""
    return [
        f"{each['kind']} {each['metadata']['name']}: {fault.json_path}: {fault.message[:200]}"
        for each in found
        for fault in validator(release, schema_file(each)).iter_errors(each)
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_every_manifest_fits_the_schema_of_its_kind(release: str) -> None:
    assert faults_of(release, [each for _, each in ALL]) == []
    wrong = json.loads(json.dumps(WORKLOADS[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert list(validator(release, schema_file(wrong)).iter_errors(wrong))


@pytest.mark.parametrize("job", JOBS, ids=lambda each: str(each["metadata"]["name"]))
def test_jobs_are_closed_and_bounded(job: Object) -> None:
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    pod = pod_of(job)
    assert pod["securityContext"]["runAsNonRoot"]
    mounted = set()
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        mounted |= {each["name"] for each in container["volumeMounts"]}
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"]
    assert mounted == {each["name"] for each in pod["volumes"]}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: str(each["metadata"]["name"]))
def test_selectors_volumes_and_ports_fit(workload: Object) -> None:
    spec = workload["spec"]
    pod = spec["template"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    claims = spec.get("volumeClaimTemplates", [])
    volumes = {each["name"] for each in pod["volumes"]} | {c["metadata"]["name"] for c in claims}
    for container in pod["containers"]:
        assert {each["name"] for each in container["volumeMounts"]} == volumes
        ports = {each["name"] for each in container.get("ports", [])}
        probed = {
            probe["httpGet"]["port"]
            for name, probe in container.items()
            if name.endswith("Probe") and "httpGet" in probe
        }
        assert probed <= ports
        security = container["securityContext"]
        assert security["capabilities"]["drop"] == ["ALL"]
        assert security["allowPrivilegeEscalation"] is False
    assert pod["automountServiceAccountToken"] is False
    services = {each["metadata"]["name"]: each for each in of_kind("Service")}
    if workload["kind"] == "StatefulSet":
        assert services[spec["serviceName"]]["spec"]["clusterIP"] == "None"


def test_services_budgets_and_policies_select_pods_that_exist() -> None:
    labels = [each["spec"]["selector"]["matchLabels"] for each in WORKLOADS]
    for service in of_kind("Service"):
        assert service["spec"]["selector"] in labels
    for budget in of_kind("PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"] in labels
    policies = [each["spec"]["podSelector"]["matchLabels"] for each in of_kind("NetworkPolicy")]
    assert set(map(str, policies)) == set(map(str, labels))


def flag_names(config: type) -> Iterator[str]:
    """Yield the names of a configuration's flags, with those of its groups."""
    hints = get_type_hints(config)
    for each in fields(config):
        kind = hints[each.name]
        if isinstance(kind, type) and is_dataclass(kind) and kind.__name__.endswith("Flags"):
            yield from flag_names(kind)
        else:
            yield each.name


@pytest.mark.parametrize(
    ("name", "config"), [("croupier-masters", MasterConfig), ("croupier-agents", AgentConfig)]
)
def test_variables_of_daemons_are_flags(name: str, config: type) -> None:
    (workload,) = [each for each in WORKLOADS if each["metadata"]["name"] == name]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    variables = [each["name"] for each in container["env"]]
    known = {f"CROUPIER_{flag.upper()}" for flag in flag_names(config)}
    assert {each for each in variables if each.startswith("CROUPIER_")} <= known
    check_references(container["env"])


def check_references(env: list[Object]) -> None:
    """Check that each variable is used after its definition: Kubernetes expands no others."""
    for number, each in enumerate(env):
        used = set(re.findall(r"\$\((\w+)\)", each.get("value", "")))
        assert used <= {earlier["name"] for earlier in env[:number]}, each


def rendered(folder: Path) -> list[Object]:
    """Return what `kubectl apply -k` would apply."""
    kubectl = found("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl, whose kustomize renders overlays")
    command = [str(kubectl), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("release", RELEASES)
def test_the_example_of_an_overlay_renders_to_valid_objects(release: str) -> None:
    objects = rendered(MANIFESTS / "overlays/example")
    assert faults_of(release, objects) == []
    pods = {
        each["metadata"]["name"]: pod_of(each)
        for each in objects
        if each["kind"] in ("StatefulSet", "DaemonSet", "CronJob")
    }
    for pod in pods.values():
        for container in pod["containers"]:
            check_references(container.get("env", []))
            assert "/" in container["image"], "the overlay names a registry for each image"
    for name, config in (("croupier-agents", AgentConfig), ("croupier-masters", MasterConfig)):
        env = {each["name"] for each in pods[name]["containers"][0]["env"]}
        known = {f"CROUPIER_{flag.upper()}" for flag in flag_names(config)}
        assert {each for each in env if each.startswith("CROUPIER_")} <= known
    agent = pods["croupier-agents"]["containers"][0]
    assert "CROUPIER_JOIN_TOKEN_FILE" not in {each["name"] for each in agent["env"]}


def test_the_renewal_replaces_every_certificate_of_its_secrets(tmp_path: Path) -> None:
    """Run the script of the job on the certificates that the documentation makes."""
    authority, now = AuthorityDirectory(tmp_path / "ca"), utc_now()
    authority.init("prod", 365, now, force=False)
    masters = [f"croupier-masters-{number}" for number in range(3)]
    leaves = [Leaf("master", name, (name,)) for name in masters]
    for leaf in (*leaves, Leaf("etcd", "members", ("etcd-0",)), Leaf("etcd", "client", ("x",))):
        authority.issue(leaf, 5, now, force=False)
    (tmp_path / "certs").mkdir()
    (tmp_path / "config").mkdir()
    shutil.copy(MANIFESTS / "renewal/secrets.yaml", tmp_path / "config/kustomization.yaml")
    (job,) = [each for each in JOBS if each["metadata"]["name"] == "croupier-renewal"]
    script = pod_of(job)["initContainers"][0]["command"][-1]
    for name in ("ca", "config", "certs"):
        script = re.sub(rf"/{name}\b", str(tmp_path / name), script)
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True, timeout=60, env=env)
    secrets = {each["metadata"]["name"]: each["data"] for each in rendered(tmp_path / "certs")}
    (role,) = of_kind("Role")
    assert sorted(secrets) == sorted(role["rules"][0]["resourceNames"])
    used = {
        volume["secret"]["secretName"]
        for workload in of_kind("StatefulSet")
        for volume in pod_of(workload)["volumes"]
        if "secret" in volume
    }
    assert used - {"croupier-secrets-key"} <= set(secrets)
    for name, data in secrets.items():
        assert b"PRIVATE" not in b64decode(data["ca.crt"])
        for file, value in data.items():
            if file.endswith(".crt") and file != "ca.crt":
                certificate = parse_certificates(b64decode(value))[0]
                assert certificate.expires_at > now.timestamp() + 20 * 86_400, (name, file)
