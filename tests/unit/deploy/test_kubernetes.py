"""The Kubernetes manifests: each fits the strict schema of its kind, and they fit each other."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints
from zipfile import ZipFile

import pytest
import yaml

from croupier.agent.config import AgentConfig
from croupier.master.config import MasterConfig
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
        for manifest in yaml.safe_load_all((MANIFESTS / folder / name).read_text())
    ]


ALL = [(folder, each) for folder in ("base", "etcd") for each in manifests(folder)]


def of_kind(*kinds: str) -> list[Object]:
    return [each for _, each in ALL if each["kind"] in kinds]


WORKLOADS = of_kind("StatefulSet", "DaemonSet")


@pytest.mark.parametrize("release", RELEASES)
def test_every_manifest_fits_the_schema_of_its_kind(release: str) -> None:
    faults = [
        f"{each['kind']} {each['metadata']['name']}: {fault.json_path}: {fault.message[:200]}"
        for _, each in ALL
        for fault in validator(release, schema_file(each)).iter_errors(each)
    ]
    assert faults == []
    wrong = json.loads(json.dumps(WORKLOADS[0]))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert list(validator(release, schema_file(wrong)).iter_errors(wrong))


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
    assert sorted(map(str, policies)) == sorted(map(str, labels))


def flag_names(config: type) -> Iterator[str]:
    """Yield the names of a configuration's flags, with those of its groups."""
    hints = get_type_hints(config)
    for each in fields(config):
        kind = hints[each.name]
        if isinstance(kind, type) and is_dataclass(kind) and kind.__module__.endswith("flags"):
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
    used = set(re.findall(r"\$\((\w+)\)", json.dumps(container["env"])))
    assert used <= set(variables)
