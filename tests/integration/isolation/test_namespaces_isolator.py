"""The isolator that makes namespaces by bubblewrap, and the tool that it needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from croupier.agent.isolation.flags import IsolationFlags
from croupier.agent.isolation.isolator import Setting
from croupier.agent.isolation.namespaces import build_namespaces
from croupier.agent.shim.build import Shim
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.isolation import Feature
from croupier.model.resources import NOTHING
from tests.harness.boxed_tasks import sleepers
from tests.harness.debian import program
from tests.harness.eventually import eventually


def test_the_isolator_is_built_on_this_machine(
    tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    isolator = build_namespaces(setting(tmp_path, shim))
    assert isolator.features == {Feature.NAMESPACES, Feature.NO_NETWORK}
    assert not list(tmp_path.glob("box-*"))


def test_a_tool_that_is_missing_or_fails_is_told(
    tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr("croupier.agent.isolation.namespaces.find_tool", lambda _: str(fake))
    with pytest.raises(Unavailable, match="does not work here: bwrap: No permissions"):
        build_namespaces(setting(tmp_path, shim))
    monkeypatch.setattr("croupier.agent.isolation.namespaces.find_tool", lambda _: "")
    with pytest.raises(Unavailable, match="not installed"):
        build_namespaces(setting(tmp_path, shim))


async def test_a_tool_that_hangs_is_ended(
    tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexec sleep 4715\n")
    fake.chmod(0o755)
    monkeypatch.setattr("croupier.agent.isolation.bubblewrap.TRIAL_S", 0.2)
    monkeypatch.setattr("croupier.agent.isolation.namespaces.find_tool", lambda _: str(fake))
    with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
        build_namespaces(setting(tmp_path, shim))
    # The kernel kills it with its parent, a little later.
    await eventually(lambda: not sleepers("4715"))


def test_paths_in_the_work_dir_cannot_be_made_visible(tmp_path: Path, shim: Shim) -> None:
    flags = IsolationFlags(visible_paths=(tmp_path / "runs",))
    with pytest.raises(InvalidRequest, match="--visible-paths"):
        build_namespaces(Setting(flags, NOTHING, tmp_path, shim))


def setting(tmp_path: Path, shim: Shim) -> Setting:
    return Setting(IsolationFlags(), NOTHING, tmp_path, shim)
