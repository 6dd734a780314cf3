"""The part of the lock that a package needs: everything that its parents name, and no more."""

from __future__ import annotations

from pathlib import Path

from deploy.locked import direct_of, needed

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"

LOCK = """# made by a tool
aiohttp==3.1 \\
    --hash=sha256:00
    # via croupier (pyproject.toml)
aiosignal==1.0 ; python_version < '4' \\
    --hash=sha256:01 \\
    --hash=sha256:02
    # via
    #   aiohttp
    #   dask
dask==2 \\
    --hash=sha256:03
    # via croupier (pyproject.toml)
frozenlist==1 \\
    --hash=sha256:04
    # via aiosignal
"""
PROJECT = """
[project]
dependencies = ["aiohttp>=3"]
[project.optional-dependencies]
dask = ["dask>=1"]
"""


def names(lock: str) -> list[str]:
    return [line.split("==")[0] for line in lock.splitlines() if line[0] not in " #"]


def test_needed_packages_come_with_their_hashes() -> None:
    found = needed(LOCK, direct_of(PROJECT, []))
    assert names(found) == ["aiohttp", "aiosignal", "frozenlist"]
    assert found.count("--hash") == 4
    assert names(needed(LOCK, direct_of(PROJECT, ["dask"]))) == names(LOCK)


def test_the_lock_of_the_package_has_all_direct_dependencies() -> None:
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    lock = (DEPLOY / "requirements.lock").read_text()
    found = names(needed(lock, direct_of(project, ["oidc", "yaml"])))
    assert {"grpcio", "protobuf", "pyjwt", "pyyaml", "typing-extensions"} <= set(found)
    assert not {"dask", "distributed", "cloudpickle"} & set(found)
