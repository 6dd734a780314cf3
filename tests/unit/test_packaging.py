"""The layout: the top level, one namespace from four roots, and the pins of what it runs on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


# `deploy/requirements.lock` pins everything that Croupier runs on, by version and hash.


LOCK = (REPO / "deploy/requirements.lock").read_text()
PIN = re.compile(
    r"^([A-Za-z0-9_.-]+)==(\S+?)( ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)",
    re.MULTILINE,
)
PINS = {canonicalize_name(match[1]): match[2] for match in PIN.finditer(LOCK)}
# The Pythons that the lock is for.
ENVIRONMENTS = [
    {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.1", "extra": "crypto"}
    for minor in (11, 12, 13)
]


def wanted() -> list[Requirement]:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"]]
    named += [each for extra in ("dask", "futures", "oidc", "yaml") for each in extras[extra]]
    return [Requirement(each) for each in named]


@pytest.mark.parametrize("requirement", wanted(), ids=lambda requirement: requirement.name)
def test_a_dependency_is_pinned_to_a_version_that_is_allowed(requirement: Requirement) -> None:
    pinned = PINS.get(canonicalize_name(requirement.name))
    assert pinned is not None, "run deploy/lock.sh"
    assert requirement.specifier.contains(pinned), "run deploy/lock.sh"


@pytest.mark.parametrize("name", PINS)
def test_dependencies_of_a_dependency_are_pinned(name: str) -> None:
    try:
        needed = [Requirement(each) for each in requires(name) or []]
    except PackageNotFoundError:
        pytest.skip("not installed here")
    for each in needed:
        for environment in ENVIRONMENTS:
            # Other extras than those of ours are not wanted.
            is_extra = each.marker is not None and "extra" in str(each.marker)
            if is_extra and name != "pyjwt":
                continue
            if each.marker is None or each.marker.evaluate(environment):
                assert canonicalize_name(each.name) in PINS, f"{name} needs {each}"


def test_every_line_is_a_pin_with_hashes_and_no_index_is_named() -> None:
    lines = [line for line in LOCK.splitlines() if not line.lstrip().startswith(("#", "--hash="))]
    assert len(lines) == len(PINS)
    assert not re.search(r"https?://|file:|index-url|find-links", LOCK)
