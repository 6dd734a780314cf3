"""The Containerfile and the compose file fit their schema, and what is in the repository."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.agent.config import AgentConfig
from croupier.master.config import MasterConfig
from tests.harness.wheels import wheel
from tests.unit.deploy.test_kubernetes import flag_names

REPO = Path(__file__).resolve().parents[3]
FOLDER = REPO / "deploy/container"
PIN = "check-jsonschema==0.39.0"
HASH = "14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b"
# An exact release or a digest: neither `latest` nor a tag that moves with minor releases.
EXACT = re.compile(r".+(:v?\d+\.\d+\.\d+(-[a-z]+)*|@sha256:[0-9a-f]{64})")

COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONTAINERFILE = (FOLDER / "Containerfile").read_text()


def test_the_compose_file_fits_the_specification() -> None:
    name = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
    schema = json.loads(wheel(PIN, HASH).read(name))
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    faults = [f"{each.json_path}: {each.message[:200]}" for each in validator.iter_errors(COMPOSE)]
    assert faults == []
    wrong = {"services": {"a": {"image": "b", "restrat": "always"}}}
    assert list(validator.iter_errors(wrong))


def test_images_are_exact_or_built_here() -> None:
    foreign = {each["image"] for each in SERVICES.values()} - {"croupier-master", "croupier-agent"}
    assert not [image for image in foreign if not EXACT.fullmatch(image)]
    (base,) = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", CONTAINERFILE, flags=re.MULTILINE)
    assert EXACT.fullmatch(base)
    assert set(re.findall(r"^FROM (\S+)", CONTAINERFILE, flags=re.MULTILINE)) == {
        "${PYTHON_IMAGE}",
        "runtime",
    }


def test_the_build_has_every_file_that_it_copies() -> None:
    ignored = (FOLDER / "Containerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    for words in map(shlex.split, re.findall(r"^COPY ([^-].*)$", CONTAINERFILE, re.MULTILINE)):
        for source in words[:-1]:
            assert (REPO / source).exists()
            assert source in kept


def test_the_image_of_masters_is_not_root() -> None:
    parts = re.split(r"^FROM \S+ AS (\w+)$", CONTAINERFILE, flags=re.MULTILINE)
    stages = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert "USER 10001:10001" in stages["master"]
    built = {each["build"]["target"] for each in SERVICES.values() if "build" in each}
    assert built == {"master", "agent"} <= set(stages)


@pytest.mark.parametrize("name", SERVICES)
def test_services_refer_to_what_exists(name: str) -> None:
    service = SERVICES[name]
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert (FOLDER / source).exists() or source in COMPOSE["volumes"]
    assert set(service.get("depends_on", [])) <= set(SERVICES)
    config = AgentConfig if name.startswith("agent") else MasterConfig
    variables = {each for each in service.get("environment", {}) if each.startswith("CROUPIER_")}
    known = {f"CROUPIER_{flag.upper()}" for flag in flag_names(config)} | {"CROUPIER_MASTER"}
    assert variables <= known


def test_every_certificate_that_is_named_is_made() -> None:
    made = {"ca.crt", "metrics.token", "prometheus.token", "agent-metrics.token", "secrets.key"}
    script = (FOLDER / "certificates.sh").read_text()
    for kind, name in re.findall(r'croupier cert (etcd|master|agent|client) "?([\w$]+)"?', script):
        for number in "123":
            stem = f"{kind}-{name.replace('$n', number)}"
            made |= {f"{stem}.crt", f"{stem}.key"}
    text = (FOLDER / "compose.yml").read_text() + (FOLDER / "prometheus.yml").read_text()
    named = set(re.findall(r"/certs/([\w.-]+)", text))
    assert named <= made


def test_masters_of_one_etcd_have_one_key_for_secrets() -> None:
    masters = [each for name, each in SERVICES.items() if name.startswith("master")]
    keys = {each["environment"]["CROUPIER_SECRETS_KEY_FILE"] for each in masters}
    assert (len(masters), keys) == (3, {"/certs/secrets.key"})
    script = (FOLDER / "certificates.sh").read_text()
    # It is made once: another key could not open what is sealed.
    assert "[ -f secrets.key ] ||" in script
