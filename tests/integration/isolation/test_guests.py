"""Runs the tests of `cgroup2/` and `systemd/` in a guest each, and reports each as a test here.

The guest of `systemd/` runs systemd as its first process, with the units of `deploy/systemd`. Both
guests have cgroup v2. To run some of the tests while you write them:
`.venv/bin/python -m tests.harness.uml .venv/bin/python -m pytest -p no:cacheprovider
tests/integration/isolation/cgroup2 -k NAME`
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.debian import NoProgram, unavailable
from tests.harness.uml import QUOTA
from tests.harness.uml_pytest import Results, inner_tests, run_tests
from tests.harness.uml_systemd import SYSTEMD

CGROUP2, UNITS = (Path(__file__).with_name(name) for name in ("cgroup2", "systemd"))
TIMEOUT_S = 480.0

pytestmark = pytest.mark.timeout(TIMEOUT_S + 30.0)


def run(folder: Path, directory: Path) -> Results:
    is_systemd = folder is UNITS
    if is_systemd and not SYSTEMD.exists():
        pytest.skip(f"this machine has no {SYSTEMD}")
    modules = () if is_systemd else ("loop", *QUOTA)
    try:
        return run_tests(
            folder, directory, timeout_s=TIMEOUT_S, modules=modules, systemd=is_systemd
        )
    except NoProgram as reason:
        unavailable(reason)


@pytest.fixture(scope="module")
def cgroup2(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(CGROUP2, tmp_path_factory.mktemp("guest"))


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(UNITS, tmp_path_factory.mktemp("guest"))


@pytest.mark.parametrize("test", inner_tests(CGROUP2))
def test_with_cgroup2(cgroup2: Results, test: str) -> None:
    cgroup2.check(test)


@pytest.mark.parametrize("test", inner_tests(UNITS))
def test_with_systemd(units: Results, test: str) -> None:
    units.check(test)
