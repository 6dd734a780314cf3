"""Commands in the documentation: those that no test runs are at least read by the real programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.harness.doc_commands import PROGRAMS, commands, mistake
from tests.harness.doc_pages import (
    LOCAL,
    LOCAL_PAGES,
    OTHER_PAGES,
    PLAIN_PAGES,
    RUN_ELSEWHERE,
    SECURED_PAGES,
    STOPPED_PAGE,
)
from tests.harness.shell_blocks import CLUSTER, Block, blocks
from tests.unit.test_docs import tracked

REPO: Final = Path(__file__).resolve().parents[2]
# Records of what was decided or changed once, and pages that are made of the programs themselves.
NOT_CHECKED: Final = ("CHANGELOG.md", "docs/decisions/", "docs/reference/")
PAGES: Final = [
    page for page in tracked() if page.endswith(".md") and not page.startswith(NOT_CHECKED)
]
# Programs and folders of other machines, or that change this one, and terminals. A block that is
# not run has one.
ELSEWHERE: Final = re.compile(
    r"\b(apt|make|pip|pipx|pip-audit|systemctl|journalctl|docker|kubectl|skopeo|ssh|etcd|SBATCH|simulate"
    r"|deploy/setup.sh|exec -it|--image|--store etcd|/etc/prometheus|prometheus)\b"
)
CODE: Final = re.compile(r"`([^`]+)`")
FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@cache
def shell_blocks(page: str) -> tuple[Block, ...]:
    return tuple(block for block in blocks((REPO / page).read_text()) if block.language == "sh")


def inline(page: str) -> Iterator[list[str]]:
    """Yield the commands of Croupier that sentences and tables name."""
    text = FENCED.sub("", (REPO / page).read_text())
    for code in CODE.findall(text):
        line = " ".join(code.split()).replace("\\|", "|")
        if line.split(" ")[0] in PROGRAMS:
            yield from commands(line)


def test_programs_accept_the_commands_of_blocks() -> None:
    found = {
        tuple(words): f"{page}:{block.line}"
        for page in PAGES
        for block in shell_blocks(page)
        for words in commands(block.text)
    }
    assert len(found) > 120
    assert [(at, words) for words, at in found.items() if mistake(words)] == []


def test_programs_know_the_commands_and_flags_that_sentences_name() -> None:
    found = {tuple(words): page for page in PAGES for words in inline(page)}
    assert len(found) > 100
    assert [(page, words) for words, page in found.items() if mistake(words, is_part=True)] == []


def test_the_shell_accepts_the_blocks() -> None:
    # Each block is a function, so that none can end in the middle of a command.
    parts = [
        f"_{number}() {{\n{block.text}\n}}\n"
        for page in PAGES
        for number, block in enumerate(shell_blocks(page))
    ]
    done = subprocess.run(["bash", "-n"], input="".join(parts), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_marks_of_blocks_are_known() -> None:
    for page in PAGES:
        for block in blocks((REPO / page).read_text()):
            block.check()


def test_a_test_runs_every_page_with_blocks() -> None:
    found = {page for page in PAGES if any(block.runs for block in shell_blocks(page))}
    here = {*LOCAL_PAGES, *SECURED_PAGES, *PLAIN_PAGES, *OTHER_PAGES, STOPPED_PAGE}
    assert found == here | set(RUN_ELSEWHERE)
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (REPO / test).read_text()


def test_the_clusters_of_pages_are_that_of_the_tests() -> None:
    started = [
        block.text for page in LOCAL_PAGES for block in shell_blocks(page) if block.mark == CLUSTER
    ]
    assert len(started) > 1
    assert all(" ".join(("croupier local", *LOCAL)) in text for text in started)


def test_blocks_that_are_not_run_belong_to_other_machines() -> None:
    left_out = [
        f"{page}:{block.line}"
        for page in PAGES
        for block in shell_blocks(page)
        if block.reason and not ELSEWHERE.search(block.text)
    ]
    assert left_out == []


@pytest.mark.parametrize(
    "line",
    [
        "croupier nosuch",
        "croupier agents --nosuch",
        "croupier tasks --older soon",
        "croupier drain",
        "croupier-agent --master m1:5050 --nosuch x",
        "A=b croupier-master backup --output x --nosuch && true",
        "docker compose run --rm admin croupier drain --nosuch agent1",
    ],
)
def test_mistakes_are_found(line: str) -> None:
    (words,) = commands(f"echo first; {line} # a comment")
    assert mistake(words)


def test_commands_are_found_with_what_shells_put_around_them() -> None:
    script = """
cat >file <<END
croupier nosuch
END
for host in a b; do croupier drain "$host" \\
    --wait; done >log 2>&1
until croupier agents | grep -q m1:5050,m2:5050; do sleep 1; done
kubectl -n croupier create secret
"""
    assert list(commands(script)) == [
        ["croupier", "drain", "$host", "--wait"],
        ["croupier", "agents"],
    ]
    assert mistake(["croupier-master", "--event-log", "events.log", "..."]) == ""
    assert mistake(["croupier", "drain"], is_part=True) == ""
