"""Options and the summary of guarded checks for all tests."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import hypothesis
import pytest

import croupier.net  # noqa: F401 - before gRPC, which it makes silent
from tests.harness import agent_defaults  # noqa: F401 - sets the environment of agents
from tests.harness.effort import portion
from tests.harness.forked_start.popen import Forks
from tests.harness.guards import COUNTS

# Shells start background jobs with SIGINT ignored, and processes inherit that. `run.sh` runs most
# tests in the background, and some of them interrupt commands.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Credentials of the user stay out of tests, and those of test clusters out of the home directory.
CONFIG_HOME = tempfile.mkdtemp(prefix="croupier-test-config-")
os.environ["XDG_CONFIG_HOME"] = CONFIG_HOME


# Of tests that name no number of examples. How long one takes depends on the machine.
hypothesis.settings.register_profile(
    "effort",
    max_examples=portion(100),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("effort")

FORKS = Forks()
FORKS.install()


def pytest_configure() -> None:
    """Refuse to run with an installation that lacks commands of `pyproject.toml`."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    wanted = project["entry-points"]["croupier.commands"].items()
    if wanted - {(each.name, each.value) for each in entry_points(group="croupier.commands")}:
        raise pytest.UsageError("the installation is out of date: run sh deploy/setup.sh dev")


def pytest_unconfigure() -> None:
    """End the interpreter that is forked; remove the credentials of test clusters."""
    FORKS.close()
    shutil.rmtree(CONFIG_HOME, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="accept what scenarios print now")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many checks of each guarded property met their condition."""
    if COUNTS:
        terminalreporter.section("guarded checks")
        width = max(map(len, COUNTS))
        for name, count in COUNTS.items():
            terminalreporter.write_line(f"{name.ljust(width)} {count:>8}")
