"""The scripts of the Debian package: what they tell, kill and remove, below a root of their own."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.agent.config import AgentConfig
from croupier.master.config import MasterConfig
from croupier.process.cli import PREFIX
from croupier.process.flag_variables import FLAG_VARIABLES
from tests.harness.debian import program
from tests.harness.wheels import wheel
from tests.unit.deploy.test_kubernetes import flag_names

SCRIPTS = Path(__file__).resolve().parents[3] / "deploy/debian"


def run(script: str, word: str, root: Path) -> str:
    """Run a script of the package as dpkg does with another root; return what it tells."""
    env = os.environ | {"DPKG_ROOT": str(root)}
    command = ["sh", str(SCRIPTS / script), word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    path = tmp_path / "var/lib/croupier/agent/tasks/F1/t1"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def task(sandbox: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], cwd=sandbox)
    yield process
    process.kill()
    process.wait(timeout=10)


def test_removal_tells_of_tasks_and_purge_kills_them(
    tmp_path: Path, task: subprocess.Popen[bytes]
) -> None:
    assert "croupier: 1 processes of tasks run on" in run("prerm", "remove", tmp_path)
    assert run("postrm", "remove", tmp_path) == ""
    assert task.poll() is None
    assert run("postrm", "purge", tmp_path) == ""
    assert task.wait(timeout=10) == -9
    assert not (tmp_path / "var/lib/croupier").exists()


def test_purge_leaves_and_names_what_cannot_be_made_again(tmp_path: Path, sandbox: Path) -> None:
    state = tmp_path / "var/lib/croupier"
    for name in ("master/master.db", "certs/ca.key", "backup/.keep"):
        (state / name).parent.mkdir()
        (state / name).write_text("x")
    (state / "backup/.keep").unlink()
    assert run("prerm", "remove", tmp_path) == ""
    told = run("postrm", "purge", tmp_path).splitlines()
    assert [line.split()[1] for line in told] == [str(state / "certs"), str(state / "master")]
    assert sorted(path.name for path in state.iterdir()) == ["certs", "master"]
    assert not sandbox.exists()


def test_an_upgrade_says_and_removes_nothing(tmp_path: Path, task: subprocess.Popen[bytes]) -> None:
    assert run("prerm", "upgrade", tmp_path) == run("postrm", "upgrade", tmp_path) == ""
    assert task.poll() is None


# The Containerfile and the compose file fit their schema, and what is in the repository.


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


# The systemd units: systemd understands every line, and the stated exposure holds.


UNITS = REPO / "deploy/systemd"
# Units of systemd that ours refer to.
OTHERS = (
    "basic", "multi-user", "network-online", "shutdown", "sysinit", "time-sync", "timers",
)  # fmt: skip
# Known since systemd 254.
NEW_KEY = "Unknown key 'DelegateSubgroup'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the units, in which the programs are found."""
    folder = tmp_path_factory.mktemp("units")
    for name in OTHERS:
        (folder / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    for unit in sorted(UNITS.glob("*.service")) + sorted(UNITS.glob("*.timer")):
        text = re.sub(
            r"^ExecStart=croupier[-\w]*",
            "ExecStart=/bin/true",
            unit.read_text(),
            flags=re.MULTILINE,
        )
        (folder / unit.name).write_text(text)
    return folder


def analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(program("systemd-analyze", "systemd")), *words]
    env = os.environ | {"SYSTEMD_UNIT_PATH": str(folder), "SYSTEMD_LOG_TIME": "0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)


def test_systemd_knows_every_setting(folder: Path) -> None:
    units = [str(unit) for unit in folder.glob("croupier-*")]
    done = analyze(folder, "verify", "--man=no", *units)
    complaints = [line for line in done.stderr.splitlines() if NEW_KEY not in line]
    assert (complaints, done.returncode) == ([], 0)


@pytest.mark.parametrize("name", ["master", "agent"])
def test_a_daemon_starts_again_however_it_ended_and_reloads(name: str) -> None:
    lines = (UNITS / f"croupier-{name}.service").read_text().splitlines()
    assert "Restart=always" in lines
    assert "ExecReload=/bin/kill -HUP $MAINPID" in lines


@pytest.mark.parametrize(
    ("unit", "most"), [("master", 1.5), ("backup", 1.5), ("certs", 6.0), ("agent", 8.3)]
)
def test_the_exposure_is_as_the_documentation_says(folder: Path, unit: str, most: float) -> None:
    name = f"croupier-{unit}.service"
    done = analyze(folder, "security", "--offline=true", "--no-pager", str(folder / name))
    found = re.search(rf"exposure level for {name}: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= most
    assert f"`{name}`: {most}" in (REPO / "docs/deployment.md").read_text()


@pytest.mark.parametrize("name", ["master", "agent"])
def test_the_example_settings_are_settings(name: str) -> None:
    text = (UNITS / f"{name}.toml").read_text()
    given = tomllib.loads(text)[f"croupier-{name}"]
    commented = re.findall(r"^# ([a-z_]+) = ", text, flags=re.MULTILINE)
    assert {f"{PREFIX}{each.upper()}" for each in (*given, *commented)} <= FLAG_VARIABLES
