"""The shell blocks of the documentation run as they are printed, on one `croupier local`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.real_local import BIN, Local, running_local
from tests.harness.shell_blocks import blocks, run_page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

REPO = Path(__file__).resolve().parents[2]
CLUSTER = ("--agents", "3", "--cpus", "2", "--mem", "2GB")
PAGE_S = 150.0

# Pages whose shell blocks all run, or say why not.
PAGES = [
    "README.md",
    "docs/first-ten-minutes.md",
    "docs/tutorials/framework.md",
    "docs/tutorials/batch.md",
    "docs/tutorials/service.md",
    "docs/tutorials/two-teams.md",
]
# Pages whose blocks need certificates, machines, packages or minutes, and are not run: no more than
# these. Tests of those parts try some of their commands.
PAGES_NOT_RUN = 18


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with running_local(tmp_path_factory.mktemp("docs"), *CLUSTER) as local:
        yield local


@pytest.mark.parametrize("page", PAGES)
def test_the_shell_blocks_of_a_page_run(page: str, local: Local, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "CROUPIER_MASTER": local.master,
    }
    begun = time.monotonic()
    print(run_page((REPO / page).read_text(), tmp_path, env, PAGE_S))
    print(f"{page}: {time.monotonic() - begun:.1f} s")


def test_most_pages_for_newcomers_run() -> None:
    pages = [REPO / "README.md", *(REPO / "docs").rglob("*.md")]
    found = {
        str(page.relative_to(REPO))
        for page in pages
        if any(block.runs for block in blocks(page.read_text()))
    }
    assert set(PAGES) <= found
    assert len(found - set(PAGES)) <= PAGES_NOT_RUN


def test_few_blocks_do_not_run() -> None:
    found = [block for page in PAGES for block in blocks((REPO / page).read_text())]
    left_out = [block.reason for block in found if block.reason]
    assert len(left_out) <= 5, left_out
    assert sum(block.runs for block in found) > 25


@pytest.mark.parametrize("page", PAGES)
def test_marks_of_blocks_are_known(page: str) -> None:
    for block in blocks((REPO / page).read_text()):
        block.check()
        if block.mark == "cluster":
            assert " ".join(("croupier local", *CLUSTER)) in block.text
