"""The worked examples of CONTRIBUTING.md work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
_ROOTS = ("proto", "master", "agent", "framework_sdk")
_FILE = re.compile(r"@@ (\S+) @@")


@dataclass(frozen=True, slots=True)
class Change:
    """What a recipe does to one file; a part begins where the one before it has ended."""

    path: str
    parts: list[list[str]]


def recipe(title: str) -> list[Change]:
    """Return the changes of a worked example."""
    text = (REPO / "CONTRIBUTING.md").read_text()
    found = re.search(rf"^### {title}$.*?^```diff\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found, f"CONTRIBUTING.md has no recipe {title!r}"
    changes: list[Change] = []
    for line in found[1].splitlines():
        if begins := _FILE.fullmatch(line):
            changes.append(Change(begins[1], [[]]))
        elif line == "...":
            changes[-1].parts.append([])
        else:
            changes[-1].parts[-1].append(line)
    return changes


def apply(change: Change, tree: Path) -> None:
    """Make a change. Lines of a file that are not in it, in this order, are an error."""
    path = tree / change.path
    if all(line.startswith("+") for part in change.parts for line in part):
        assert not path.exists(), f"{change.path} exists, and the recipe has no line of it"
        path.write_text("\n".join(line[1:] for part in change.parts for line in part) + "\n")
        return
    lines, at = path.read_text().splitlines(), 0
    for part in change.parts:
        old = [line[1:] for line in part if line[:1] != "+"]
        new = [line[1:] for line in part if line[:1] != "-"]
        assert old, f"{change.path}: a part of the recipe has no line of the file: {new}"
        places = (n for n in range(at, len(lines)) if lines[n : n + len(old)] == old)
        place = next(places, None)
        assert place is not None, f"{change.path} has no lines {old} after line {at}"
        lines[place : place + len(old)] = new
        at = place + len(new)
    path.write_text("\n".join(lines) + "\n")


class Copy:
    """A copy of the files that belong to the project, with the environment of this one."""

    def __init__(self, tree: Path) -> None:
        """Make the copy."""
        self._tree = tree
        for name in _files():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, tree / name)
        (tree / ".venv").symlink_to(REPO / ".venv")

    def follow(self, title: str) -> None:
        """Apply a recipe, and generate what is generated."""
        changes = recipe(title)
        for change in changes:
            apply(change, self._tree)
        if any(change.path.endswith(".proto") for change in changes):
            self.run("proto/generate.py")
            self.run("-m", "tests.upgrade.tags")
        code = [change.path for change in changes if change.path.endswith(".py")]
        self.run("-m", "ruff", "check", "--quiet", *code)
        self.run("-m", "ruff", "format", "--check", "--quiet", *code)
        tests = [path for path in code if path.startswith("tests/")]
        if tests:
            self.test(*tests)

    def test(self, *arguments: str) -> None:
        """Run tests of the copy."""
        self.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", *arguments
        )

    def run(self, *arguments: str) -> None:
        """Run Python in the copy, on its modules."""
        path = os.pathsep.join(str(self._tree / root) for root in _ROOTS)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._tree,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"


def _files() -> Iterator[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPO, check=True, capture_output=True, text=True)
    return (name for name in listed.stdout.split("\0") if name and (REPO / name).is_file())


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
