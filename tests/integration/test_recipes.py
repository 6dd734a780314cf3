"""The worked examples of CONTRIBUTING.md work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.recipes import REPO, Change, Copy, apply


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    if not (REPO / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files are ours")
    return Copy(tmp_path)


@pytest.mark.parametrize(
    ("title", "tests"),
    [
        ("A metric", ["tests/unit/master/test_metric_docs.py"]),
        ("An operator command", ["tests/unit/test_tags.py", "tests/unit/master/test_teardown.py"]),
        ("A column of a list", ["tests/unit/test_tags.py", "tests/unit/ctl/test_screens.py"]),
        ("A task field", ["tests/unit/test_tags.py", "tests/unit/model/test_task.py"]),
    ],
)
def test_a_recipe_is_complete(copy: Copy, title: str, tests: list[str]) -> None:
    copy.follow(title)
    copy.test(*tests)


@pytest.mark.parametrize("lines", [[" gone"], ["+x"], [" b", " a"]])
def test_a_recipe_that_does_not_fit_is_an_error(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "file").write_text("a\nb\n")
    with pytest.raises(AssertionError):
        apply(Change("file", [lines]), tmp_path)
