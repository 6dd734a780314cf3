"""Files of tasks that their sandboxes do not show."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from croupier.agent.isolation import disk_size
from croupier.agent.isolation.disk_size import HiddenFiles, processes_below, removed_files
from croupier.agent.unix_user import UidRange

UIDS = UidRange(2_062_000, 2_062_001)


def test_removed_files_count_once_while_they_are_open(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    before = removed_files([os.getpid()], device)
    with (tmp_path / "gone").open("wb") as gone, (tmp_path / "kept").open("wb") as kept:
        for file in (gone, kept):
            file.write(os.urandom(300_000))
            file.flush()
        again = os.dup(gone.fileno())
        (tmp_path / "gone").unlink()
        found = removed_files([os.getpid(), 0, 4_194_304], device)
        os.close(again)
        assert found.files == before.files + 1
        assert 300_000 <= found.size - before.size < 320_000
        assert removed_files([os.getpid()], device + 1).size == 0
    assert removed_files([os.getpid()], device) == before


def test_processes_belong_to_the_nearest_shim_above(tmp_path: Path) -> None:
    line = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE) as shim:
        assert shim.stdout is not None
        child = int(shim.stdout.readline())
        try:
            assert sorted(processes_below({shim.pid: "r1"})["r1"]) == sorted([shim.pid, child])
            both = processes_below({shim.pid: "r1", child: "r2"})
            assert both == {"r1": [shim.pid], "r2": [child]}
        finally:
            os.kill(child, 9)
            shim.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_files_in_shared_directories_count_by_their_uid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_size, "is_in_memory", lambda path: path.name == "memory")
    for name in ("tmp", "memory", "sandbox"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(os.urandom(100_000))
        os.chown(tmp_path / name / "file", UIDS.first, 0)
    (tmp_path / "tmp/tree/below").mkdir(parents=True)
    (tmp_path / "tmp/tree/below/file").write_bytes(os.urandom(200_000))
    (tmp_path / "tmp/root").write_bytes(os.urandom(400_000))
    (tmp_path / "tmp/link").symlink_to(tmp_path / "memory")
    for path in ("tmp/tree", "tmp/link", "sandbox"):
        os.chown(tmp_path / path, UIDS.first, 0, follow_symlinks=False)
    hidden = HiddenFiles(UIDS, [tmp_path / "tmp", tmp_path / "memory", tmp_path / "none"])
    hidden.look({})
    sandbox = os.open(tmp_path / "sandbox", os.O_RDONLY)
    try:
        found = hidden.of("r1", sandbox)
        os.chown(sandbox, UIDS.last, 0)
        other = hidden.of("r1", sandbox)
    finally:
        os.close(sandbox)
    assert 300_000 <= found.size < 340_000
    assert (found.files, other.size) == (5, 0)
