"""Shared memory of ended tasks is removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from croupier.agent.isolation.uid_claims import Leftovers, UidClaims
from croupier.agent.unix_user import UidRange

# Not used by agents of other tests.
UIDS = UidRange(2_061_000, 2_061_001)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture
def claims(tmp_path: Path) -> UidClaims:
    return UidClaims(UIDS, tmp_path / "runs", tmp_path / "uids")


async def test_files_of_ended_tasks_are_removed(tmp_path: Path, claims: UidClaims) -> None:
    live = claims.take("r1")
    ended = UIDS.first + UIDS.last - live
    shared = tmp_path / "shm"
    shared.mkdir()
    (shared / "tree").mkdir()
    (shared / "tree/file").touch()
    (shared / "link").symlink_to(tmp_path)
    for name in ("-rf", "root", "live", "other"):
        (shared / name).touch()
    for name, uid in (("tree", ended), ("link", ended), ("-rf", ended), ("live", live)):
        os.chown(shared / name, uid, uid, follow_symlinks=False)
    os.chown(shared / "other", UIDS.last + 1, UIDS.last + 1)
    found = Leftovers(UIDS, claims, [shared])
    await found.sweep()
    assert sorted(path.name for path in shared.iterdir()) == ["live", "other", "root"]
    claims.release(live)
    with subprocess.Popen(["sleep", "60"], user=live) as process:
        await found.sweep()
        assert (shared / "live").exists(), "a process has the uid"
        process.kill()
    await found.sweep()
    assert not (shared / "live").exists()
    assert tmp_path.exists()


async def test_system_v_objects_of_ended_tasks_are_removed(
    tmp_path: Path, claims: UidClaims
) -> None:
    uid = claims.take("r1")
    made = subprocess.run(["ipcmk", "-M", "4096", "-Q", "-S", "1"], user=uid, check=True)
    assert made.returncode == 0
    found = Leftovers(UIDS, claims, [tmp_path])
    await found.sweep()
    assert len(list(found._objects())) == 3
    claims.release(uid)
    await found.sweep()
    assert not list(found._objects())
