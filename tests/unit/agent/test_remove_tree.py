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

from croupier.agent.janitor import remove_trees
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
        await asyncio.wait_for(removing, 5)
    assert not is_running(int(pid.read_text()))
    assert (tmp_path / "left").exists()


async def test_the_last_of_many_errors_is_logged(tmp_path: Path, rm: Callable[[str], Path]) -> None:
    (tmp_path / "left").mkdir()
    rm("yes 'rm: it is in use' | head -n 100000 >&2; echo 'rm: it is stuck' >&2; exit 1")
    with capture_logs() as logs:
        assert await remove_trees([tmp_path / "left"]) == 0
    assert [log["error"] for log in logs] == ["rm: it is stuck"]
