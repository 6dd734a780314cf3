"""Runs the tests of `systemd/` in one guest whose first process is systemd, each as a test here.

The units are those of `deploy/systemd`, and control groups are version 2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.debian import NoProgram, unavailable
from tests.harness.uml_pytest import Results, inner_tests, run_tests
from tests.harness.uml_systemd import SYSTEMD

FOLDER = Path(__file__).with_name("systemd")
TIMEOUT_S = 240.0

pytestmark = pytest.mark.timeout(TIMEOUT_S + 30.0)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    if not SYSTEMD.exists():
        pytest.skip(f"this machine has no {SYSTEMD}")
    try:
        directory = tmp_path_factory.mktemp("guest")
        return run_tests(FOLDER, directory, timeout_s=TIMEOUT_S, systemd=True)
    except NoProgram as reason:
        unavailable(reason)


@pytest.mark.parametrize("test", inner_tests(FOLDER))
def test_in_a_guest(results: Results, test: str) -> None:
    results.check(test)
