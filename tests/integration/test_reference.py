"""The generated pages of the documentation are current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDER = REPO / "docs" / "reference"
# A command in a text, such as `croupier weights set ads 2`.
COMMAND = re.compile(r"`croupier ([a-z]+)[ `]")


def test_the_generated_pages_are_current() -> None:
    """`make reference` rewrites them."""
    command = [sys.executable, "-m", "docs.site.reference", "--check"]
    checked = subprocess.run(
        command, cwd=REPO, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_name_has_a_place() -> None:
    """The generator does not leave out what it cannot read."""
    text = {page.stem: page.read_text() for page in FOLDER.glob("*.md")}
    for page, names in {
        "croupier": ("## croupier run", "`--wait-for-resources", "## Connection flags"),
        "croupier-master": ("`--listen", "`--preemption", "`--store"),
        "croupier-agent": ("`--work-dir", "`--task-user"),
        "log-events": ("`leader_elected`", "`agent_joined`", "`processes_left`"),
        "grpc": ("`DrainAgent`", "### Subscribe", "`UpdatePolicy`"),
        "http": ("`GET /api/v1/agents`",),
        "sdk": ("### Framework", "### ClusterExecutor", "### DaskCluster", "### FakeMaster"),
    }.items():
        assert [name for name in names if name not in text[page]] == [], page
    assert len(re.findall(r"^\| `--", text["croupier-master"], re.MULTILINE)) > 40


def test_commands_that_pages_name_exist() -> None:
    known = set(
        re.findall(r"^## croupier (\w+)", (FOLDER / "croupier.md").read_text(), re.MULTILINE)
    )
    named = {
        (str(page.relative_to(REPO)), word)
        for page in (REPO / "README.md", *sorted((REPO / "docs").rglob("*.md")))
        if "decisions" not in page.parts
        for word in COMMAND.findall(page.read_text())
    }
    assert len(named) > 50
    assert sorted((page, word) for page, word in named if word not in known) == []
