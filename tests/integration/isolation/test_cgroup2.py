"""Runs the tests of `cgroup2/` in one guest with cgroup v2, and reports each as a test here.

To run some of them while you write them:
`.venv/bin/python -m tests.harness.uml .venv/bin/python -m pytest -p no:cacheprovider
tests/integration/isolation/cgroup2 -k NAME`
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.debian import NoProgram, unavailable
from tests.harness.uml import QUOTA
from tests.harness.uml_pytest import Results, inner_tests, run_tests

FOLDER = Path(__file__).with_name("cgroup2")
TIMEOUT_S = 240.0

pytestmark = pytest.mark.timeout(TIMEOUT_S + 30.0)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    try:
        return run_tests(
            FOLDER,
            tmp_path_factory.mktemp("guest"),
            timeout_s=TIMEOUT_S,
            modules=("loop", *QUOTA),
        )
    except NoProgram as reason:
        unavailable(reason)


@pytest.mark.parametrize("test", inner_tests(FOLDER))
def test_in_a_guest(results: Results, test: str) -> None:
    results.check(test)
