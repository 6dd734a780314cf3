"""Directory trees are removed at any depth and with any names and permissions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from croupier.agent.isolation.uid_claims import Leftovers, UidClaims
from croupier.agent.janitor import remove_trees
from croupier.agent.unix_user import UidRange
from tests.harness.eventually import eventually
from tests.harness.processes import is_running

# Deeper than Python's recursion limit, and longer than a path may be.
DEPTH = 5000


def nest(path: Path) -> None:
    script = f"import os\nfor _ in range({DEPTH}):\n os.mkdir('d' * 20)\n os.chdir('d' * 20)\n"
    path.mkdir()
    subprocess.run([sys.executable, "-c", script], cwd=path, check=True, timeout=30)


async def test_deeply_nested_directories_are_removed(tmp_path: Path) -> None:
    nest(tmp_path / "deep")
    (tmp_path / "plain").mkdir()
    assert await remove_trees([tmp_path / "deep", tmp_path / "plain"]) == 2
    assert not list(tmp_path.iterdir())


async def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "left").mkdir()
    (tmp_path / "left/link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    assert await remove_trees([tmp_path / "left", tmp_path / "link"]) == 2
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "kept", tmp_path / "kept/file"]


async def test_missing_paths_are_not_counted(tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert await remove_trees([tmp_path / "never was"]) == 0
        assert await remove_trees([]) == 0
    assert not logs


async def test_names_that_look_like_flags_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-v").mkdir()
    assert await remove_trees([Path("-v")]) == 1


REMOVE = """
import asyncio, os, sys
from pathlib import Path
from croupier.agent.janitor import remove_trees
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(asyncio.run(remove_trees([Path(sys.argv[1])])))
"""


async def test_directories_without_write_permission_are_removed(tmp_path: Path) -> None:
    # Root has all permissions, so another user removes them.
    place = Path(os.path.realpath("/tmp")) / f"croupier-remove-{os.getpid()}"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    try:
        left = place / "left"
        (left / "module").mkdir(parents=True)
        (left / "module/file").touch()
        (left / "sibling").touch()
        for path in (left, left / "module", left / "module/file", left / "sibling"):
            if os.geteuid() == 0:
                os.chown(path, 65534, 65534)
        (left / "module").chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", REMOVE, str(left)], capture_output=True, text=True, timeout=30
        )
        assert (done.stdout, done.stderr) == ("1\n", "")
        assert not left.exists()
    finally:
        assert await remove_trees([place]) == 1


@pytest.fixture
def rm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Replace rm by a script that first writes its pid; return the file of the pid."""

    def replace(script: str) -> Path:
        place, pid = tmp_path / "bin", tmp_path / "pid"
        place.mkdir()
        (place / "rm").write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}\n{script}\n")
        (place / "rm").chmod(0o755)
        monkeypatch.setattr(os, "defpath", f"{place}:{os.defpath}")
        return pid

    return replace


async def test_a_cancelled_removal_kills_rm(tmp_path: Path, rm: Callable[[str], Path]) -> None:
    (tmp_path / "left").mkdir()
    pid = rm("exec sleep 60")
    removing = asyncio.create_task(remove_trees([tmp_path / "left"]))
    await eventually(pid.exists)
    removing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(removing, 30)
    assert not is_running(int(pid.read_text()))
    assert (tmp_path / "left").exists()


async def test_the_last_of_many_errors_is_logged(tmp_path: Path, rm: Callable[[str], Path]) -> None:
    (tmp_path / "left").mkdir()
    rm("yes 'rm: it is in use' | head -n 100000 >&2; echo 'rm: it is stuck' >&2; exit 1")
    with capture_logs() as logs:
        assert await remove_trees([tmp_path / "left"]) == 0
    assert [log["error"] for log in logs] == ["rm: it is stuck"]


# Shared memory of ended tasks is removed, and nothing else.


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
