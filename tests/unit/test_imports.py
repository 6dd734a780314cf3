"""Heavy modules that an import does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

TERMINAL = {"cyclopts", "rich"}
WEB = {"aiohttp", "yarl", "multidict"}


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import croupier.sdk", {"re2", "prometheus_client", "structlog", *TERMINAL, *WEB}),
        ("import croupier.net.client_session", {"prometheus_client", "structlog", *TERMINAL, *WEB}),
        ("import croupier.master.__main__", {"grpc", "structlog", "rich", *WEB}),
        ("import croupier.master.app", {"re2", "structlog", "croupier.etcd", *TERMINAL, *WEB}),
        ("import croupier.agent.__main__", {"grpc", "structlog", "rich", *WEB}),
        ("import croupier.agent.app", {"re2", "structlog", *TERMINAL, *WEB}),
        (
            "import croupier.ctl.__main__",
            {"grpc", "google.protobuf", "structlog", "rich", "yaml", *WEB},
        ),
    ],
)
def test_import_loads_no_heavy_module(statement: str, absent: set[str]) -> None:
    assert loaded_by(statement) & absent == set()


@pytest.mark.parametrize(
    "statement",
    [
        "import croupier.sdk, croupier.futures, croupier.master.app, croupier.agent.app",
        "from croupier.ctl.__main__ import main; main(['agents', '--help'])",
        "from croupier.ctl.__main__ import main; main(['run', '--help'])",
    ],
)
def test_only_its_own_command_loads_the_laboratory(statement: str) -> None:
    """`croupier --help` loads its command line too, for the summary."""
    assert not {name for name in loaded_by(statement) if name.startswith("croupier.lab")}


def test_the_summary_of_all_commands_loads_no_library_of_the_laboratory() -> None:
    loaded = loaded_by("from croupier.ctl.__main__ import main; main(['--help'])")
    assert "croupier.lab.cli" in loaded
    assert not {"matplotlib", "numpy", "croupier.master"} & loaded


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        ([], set()),
        (["weights"], {"role_settings"}),
        (["quota", "set"], {"role_settings"}),
        (["why"], {"framework"}),
    ],
)
def test_help_loads_no_other_command(words: list[str], modules: set[str]) -> None:
    loaded = loaded_by(f"from croupier.ctl.__main__ import main; main({[*words, '--help']})")
    package = "croupier.ctl.commands."
    found = {name.removeprefix(package) for name in loaded if name.startswith(package)}
    assert found == modules
    assert loaded & {"aiohttp", "structlog", "cryptography"} == set()
    assert modules or loaded & {"grpc", "google.protobuf"} == set()


def test_first_pattern_loads_re2() -> None:
    assert "re2" in loaded_by("from croupier.sdk import matches; matches('rack', 'r.*')")


def test_pattern_without_re2_is_refused_by_name() -> None:
    program = """
sys.modules["re2"] = None
from croupier.sdk import InvalidRequest, matches
try:
    matches("rack", "r.*")
except InvalidRequest as error:
    assert "constraint on rack" in str(error) and "pip install google-re2" in str(error), error
else:
    raise AssertionError("the pattern was taken")
"""
    loaded_by(program)
