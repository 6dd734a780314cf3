"""Every text file in this directory is a scenario; its output must equal the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.harness.agent_story import AgentCase
from tests.harness.cases import run_cases
from tests.harness.deals import run_deals
from tests.harness.failover_story import FailoverCase
from tests.harness.scenario import run_story

FOLDER = Path(__file__).parent
STORIES = sorted(FOLDER.rglob("*.txt"))
RUNNERS: dict[str, Callable[[str], str]] = {
    "scenarios": run_story,
    "allocator": run_deals,
    "agent": partial(run_cases, make=AgentCase),
    "failover": partial(run_cases, make=FailoverCase),
}


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_scenario(story: Path, request: pytest.FixtureRequest) -> None:
    output = RUNNERS[story.parent.name](story.read_text())
    if request.config.getoption("--rewrite"):
        story.write_text(output)
    assert output == story.read_text()


def test_there_are_scenarios() -> None:
    assert len(STORIES) >= 8
