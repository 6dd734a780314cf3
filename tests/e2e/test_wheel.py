"""The wheel in a clean environment, and a framework without the packages of the daemons."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from croupier.net.version import croupier_version
from tests.harness.real_local import running_local

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REPO = Path(__file__).resolve().parents[2]
PUBLIC = "from croupier.sdk import Framework, Offer, Resources, Task, TaskState, TaskStatus"

PROGRAMS = ("croupier", "croupier-master", "croupier-agent")

Run = Callable[..., str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a runner for programs of an environment with only the wheel of `make dist`."""
    scratch = tmp_path_factory.mktemp("wheel")
    succeed(["sh", "deploy/dist.sh", str(scratch)], REPO)
    (wheel,) = scratch.glob("*.whl")
    venv.create(scratch / "env")
    # The pip of this environment installs into that one. Modules are compiled when they are used.
    pip = [sys.executable, "-m", "pip", "--python", str(scratch / "env/bin/python")]
    flags = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    succeed([*pip, "install", *flags, str(wheel)], scratch)
    outside = scratch / "outside"
    outside.mkdir()

    def run(program: str, *argv: str) -> str:
        return succeed([str(scratch / "env/bin" / program), *argv], outside)

    return run


def succeed(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_version_names_the_commit(installed: Run, program: str) -> None:
    commit = succeed(["git", "rev-parse", "--short=12", "HEAD"], REPO).strip()
    version = installed(program, "--version").strip().removesuffix("-dirty)").removesuffix(")")
    assert version == f"{croupier_version()} ({commit}"


def test_the_applications_are_commands(installed: Run) -> None:
    commands = installed("croupier", "--help")
    for name in ("run", "batch", "service", "cron"):
        assert f" {name} " in commands
        assert f"croupier {name}" in installed("croupier", name, "--help")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_of_completion_are_installed(installed: Run, shell: str) -> None:
    assert "croupier complete " in installed("croupier", "completion", shell)


def test_a_second_build_has_the_same_bytes(installed: Run, tmp_path: Path) -> None:
    succeed(["sh", "deploy/dist.sh", str(tmp_path)], REPO)
    first = Path(installed("python", "-c", "import sys; print(sys.prefix)").strip()).parent
    built = sorted(tmp_path.iterdir())
    assert [path.suffix for path in built] == [".whl", ".json", ".gz"]
    assert [
        path.name for path in built if path.read_bytes() != (first / path.name).read_bytes()
    ] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_shows_its_help(installed: Run, program: str) -> None:
    assert program in installed(program, "--help")


def test_the_public_names_can_be_imported(installed: Run) -> None:
    where = f"{PUBLIC}\nimport croupier.sdk\nprint(croupier.sdk.__file__)"
    assert "site-packages" in installed("python", "-W", "error", "-c", where)


def test_the_wheel_contains_the_wire_contract_and_py_typed(installed: Run) -> None:
    list_files = (
        "from importlib.metadata import files\n"
        "print(*sorted(str(path) for path in files('croupier')), sep='\\n')"
    )
    names = installed("python", "-c", list_files).splitlines()
    assert "croupier/v1/framework.proto" in names
    packages = ("agent", "ctl", "etcd", "master", "model", "net", "process", "sdk", "v1", "wire")
    assert {f"croupier/{package}/py.typed" for package in packages} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "proto", "deploy"))]


def test_an_agent_of_the_wheel_needs_no_compiler(installed: Run) -> None:
    program = (
        "import os, pathlib\n"
        "from croupier.agent.isolation.container_runtime import build_program\n"
        "from croupier.agent.shim.build import prepare_shim\n"
        "os.environ['PATH'] = '/nowhere'\n"
        "print(prepare_shim(pathlib.Path.cwd()), build_program(pathlib.Path.cwd()))\n"
    )
    assert "Shim(argv=" in installed("python", "-W", "error", "-c", program)


def test_an_installation_has_no_package_of_an_extra(installed: Run) -> None:
    names = "from importlib.metadata import distributions as d; print(*(each.name for each in d()))"
    extras = {"PyJWT", "PyYAML", "cloudpickle", "dask", "matplotlib", "opentelemetry-sdk"}
    assert not extras & set(installed("python", "-c", names).split())


def test_the_footprint_of_an_installation_is_measured(installed: Run) -> None:
    measured = installed("python", str(REPO / "deploy/footprint.py"), "1")
    assert "| `import croupier.sdk` |" in measured
    assert measured.endswith("Loaded of the laboratory: croupier.lab, croupier.lab.cli\n")


def test_the_readmes_framework_runs(installed: Run, tmp_path: Path) -> None:
    """Run it verbatim with only the wheel installed, against a cluster of the wheel."""
    text = (REPO / "README.md").read_text()
    (code,) = re.findall(r"```python[^\n]*\n(from croupier\.sdk import.*?)```", text, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (tmp_path / "hello.py").write_text(code)
    bin_dir = Path(installed("python", "-c", "import sys; print(sys.prefix)").strip()) / "bin"
    with running_local(tmp_path, "--agents", "2", bin_dir=bin_dir) as local:
        done = local.run(str(bin_dir / "python"), "hello.py", timeout_s=90)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("FINISHED") == 5


def test_the_demo_prints_the_right_results(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where its daemons start as forks."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    handler = signal.getsignal(signal.SIGTERM)
    spec = importlib.util.spec_from_file_location("demo", REPO / "deploy/demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(demo)
        assert demo.main() == 0
    finally:
        signal.signal(signal.SIGTERM, handler)
    output = capfd.readouterr().out
    assert "A: 3 tasks, share 0.667, B: 2 tasks, share 0.667" in output
    assert "equal to the count of one process" in output
    assert "Both results are right" in output


# Runs the program that its argument names, with the daemons' packages unimportable.
RUNNER = """
import runpy, sys
from importlib.abc import MetaPathFinder

BLOCKED = "aiohttp cyclopts prometheus_client re2 rich sortedcontainers structlog".split()

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_readme_framework_runs_without_the_packages_of_daemons(tmp_path: Path) -> None:
    text = (REPO / "framework_sdk" / "README.md").read_text()
    (tmp_path / "hello.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    with running_local(tmp_path, "--agents", "1") as local:
        done = local.run(sys.executable, "-W", "error", "-c", RUNNER, "hello.py", timeout_s=90)
    assert (done.returncode, done.stderr) == (0, "")
    states = [line.split() for line in done.stdout.splitlines()]
    assert {len(words) for words in states} == {2}, "stdout has only the framework's output"
    assert sorted(state for _, state in states if state == "FINISHED") == ["FINISHED"] * 5
    assert {state for _, state in states} <= {"STARTING", "RUNNING", "FINISHED"}
