"""Volumes are directories with an owner, which stay until the master has them removed."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from croupier.agent.isolation.disk import ProjectQuotas
from croupier.agent.sandbox import Sandboxes
from croupier.agent.volumes import Volumes
from croupier.model.agent_orders import SetVolume
from croupier.model.errors import Unavailable
from croupier.model.ids import NO_FRAMEWORK, FrameworkId, HoldId
from croupier.model.volume import Volume

MIB = 1 << 20
OWN = Volume(HoldId("v1"), FrameworkId("F1"))
OTHER = Volume(HoldId("v1"), FrameworkId("F2"))
SHARED = Volume(HoldId("v1"), NO_FRAMEWORK, "a/b")


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    for name in ("sandboxes", "volumes"):
        (tmp_path / name).mkdir()
    return tmp_path


def opened(work_dir: Path, quotas: ProjectQuotas | None = None) -> Volumes:
    return Volumes(work_dir / "volumes", Sandboxes(work_dir / "sandboxes"), quotas)


def test_each_owner_has_a_directory_of_its_own(work_dir: Path) -> None:
    volumes = opened(work_dir)
    for each in (OWN, OTHER, SHARED):
        volumes.set(SetVolume(each, MIB))
    assert len({volumes.path(each) for each in (OWN, OTHER, SHARED)}) == 3
    assert volumes.listed() == {OWN, OTHER, SHARED}


def test_files_stay_until_the_volume_is_removed(work_dir: Path) -> None:
    volumes = opened(work_dir)
    volumes.set(SetVolume(OWN, MIB))
    file = Path(volumes.path(OWN), "file")
    file.touch()
    # As in each session, and by the next agent.
    volumes = opened(work_dir)
    volumes.set(SetVolume(OWN, MIB))
    assert volumes.listed() == {OWN}
    assert file.exists()
    assert Path(volumes.path(OWN), "file") == file
    volumes.set(SetVolume(OWN, 0))
    assert not volumes.listed()
    assert not file.exists()
    with pytest.raises(Unavailable, match="volume v1 has no directory on this agent"):
        volumes.path(OWN)
    # What is not there need not be removed.
    volumes.set(SetVolume(OWN, 0))
    volumes.set(SetVolume(OWN, MIB))
    assert not list(Path(volumes.path(OWN)).iterdir())


def test_names_that_are_no_volumes_are_not_listed(work_dir: Path) -> None:
    (work_dir / "volumes" / "F 1" / "v1").mkdir(parents=True)
    (work_dir / "volumes" / "file").touch()
    assert not opened(work_dir).listed()


def test_the_kernel_bounds_a_volume_if_it_has_quotas(work_dir: Path) -> None:
    quotas = Mock(spec=ProjectQuotas)
    volumes = opened(work_dir, quotas)
    volumes.set(SetVolume(OWN, MIB))
    assert quotas.limit.call_args.args[1:] == (MIB, 10_000)
    quotas.release.assert_not_called()
    volumes.set(SetVolume(OWN, 0))
    quotas.release.assert_called_once()


def test_a_directory_that_cannot_be_made_is_made_by_the_next_session(work_dir: Path) -> None:
    volumes = opened(work_dir)
    in_the_way = work_dir / "volumes" / "F1"
    in_the_way.touch()
    volumes.set(SetVolume(OWN, MIB))
    assert not volumes.listed()
    in_the_way.unlink()
    volumes.set(SetVolume(OWN, MIB))
    assert volumes.listed() == {OWN}
