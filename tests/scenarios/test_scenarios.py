"""Every text file in this directory is a scenario; its output must equal the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.agent_story import run_agent
from tests.harness.deals import run_cases
from tests.harness.scenario import run_story

FOLDER = Path(__file__).parent
STORIES = sorted(FOLDER.rglob("*.txt"))
RUNNERS = {"scenarios": run_story, "allocator": run_cases, "agent": run_agent}


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_scenario(story: Path, request: pytest.FixtureRequest) -> None:
    output = RUNNERS[story.parent.name](story.read_text())
    if request.config.getoption("--rewrite"):
        story.write_text(output)
    assert output == story.read_text()


def test_there_are_scenarios() -> None:
    assert len(STORIES) >= 8
