"""Every text file in this directory is a scenario; its output must equal the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.deals import run_cases
from tests.harness.scenario import run_story

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
CASES = sorted((Path(__file__).parent / "allocator").glob("*.txt"))


@pytest.mark.parametrize("story", [*STORIES, *CASES], ids=lambda path: path.stem)
def test_scenario(story: Path, request: pytest.FixtureRequest) -> None:
    output = (run_cases if story in CASES else run_story)(story.read_text())
    if request.config.getoption("--rewrite"):
        story.write_text(output)
    assert output == story.read_text()


def test_there_are_scenarios() -> None:
    assert len(STORIES) >= 8
