"""The layout: the top level, and one namespace from four roots."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
ROOTS = ("proto", "master", "agent", "framework_sdk")
TOP = {
    "pyproject.toml",
    *ROOTS,
    "deploy",
    "docs",
    "tests",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    ".ci",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
}


def tracked() -> list[Path]:
    if not (REPO / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files are ours")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO, check=True, capture_output=True, text=True
    )
    return [Path(name) for name in listed.stdout.split("\0") if name]


def test_the_top_level_contains_nothing_else() -> None:
    assert {path.parts[0] for path in tracked()} <= TOP


def test_the_namespace_belongs_to_no_root() -> None:
    """One `croupier/__init__.py` would hide the packages of the three other roots."""
    assert not [root for root in ROOTS if (REPO / root / "croupier/__init__.py").exists()]


def test_no_package_lives_in_two_roots() -> None:
    packages = [path.name for root in ROOTS for path in sub_packages(root)]
    assert sorted(packages) == sorted(set(packages))
    assert {"model", "v1", "wire", "net", "process", "master", "sim", "ctl", "agent", "sdk"} <= set(
        packages
    )


@pytest.mark.parametrize("root", ROOTS)
def test_every_package_is_typed(root: str) -> None:
    untyped = [path.name for path in sub_packages(root) if not (path / "py.typed").is_file()]
    assert untyped == []


def test_no_module_has_a_vague_name() -> None:
    vague = {"utils", "helpers", "common", "manager", "base"}
    assert [path for path in tracked() if path.suffix == ".py" and path.stem in vague] == []


def sub_packages(root: str) -> list[Path]:
    return sorted(path.parent for path in (REPO / root / "croupier").glob("*/__init__.py"))
