"""Project quotas of sandboxes on ext4, in a guest whose kernel has them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from croupier.agent.isolation.disk import (
    FIRST_ID,
    DiskIsolator,
    ProjectQuotas,
    disk_isolator,
    project_of,
)
from croupier.agent.isolation.isolator import Launch
from croupier.agent.sandbox import Sandboxes
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import NO_LIMITS
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo
from tests.harness.debian import program

MIB = 1 << 20
ORDINARY = 65534
KEY = FrameworkId("F"), TaskId("t")
LAUNCH = Launch(
    "r1", KEY, TaskInfo(KEY[1], Command(("x",)), Resources.parse("disk:1")), "", ("x",), {}
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount ext4 with project quotas."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    options = ["-q", "-O", "project,quota", "-E", "quotatype=prjquota"]
    subprocess.run([str(program("mkfs.ext4")), *options, str(image)], check=True, timeout=90)
    subprocess.run(["mount", "-o", "loop,prjquota", image, disk], check=True, timeout=90)
    (disk / "sandboxes").mkdir()
    yield disk / "sandboxes"
    subprocess.run(["umount", disk], check=True, timeout=90)


@pytest.fixture
def isolator(disk: Path) -> Iterator[DiskIsolator]:
    made = disk_isolator(Sandboxes(disk), NO_LIMITS, lambda _: None)
    yield made
    made.close()


def fill(path: Path, size: int) -> int:
    """Write as an ordinary user until the disk is full; return the bytes written.

    The kernel holds no process with CAP_SYS_RESOURCE to a quota.
    """
    # The file is opened here, because the user may not enter the directories above it.
    with path.open("ab") as file:
        before = file.tell()
        subprocess.run(
            ["dd", "if=/dev/zero", "bs=64k", f"count={size // 65536}", "status=none"],
            user=ORDINARY,
            group=ORDINARY,
            stdout=file,
            timeout=90,
        )
        return os.fstat(file.fileno()).st_size - before


def test_the_kernel_refuses_what_goes_beyond_the_limit(disk: Path, isolator: DiskIsolator) -> None:
    sandboxes = Sandboxes(disk)
    with sandboxes.create(KEY) as sandbox, sandbox.streams() as (stdout, _):
        isolator.prepare(LAUNCH)
        # Made before the limit was set.
        assert project_of(stdout) >= FIRST_ID
    box = Path(sandbox.path)
    (box / "a").mkdir()
    written = fill(box / "a/f", 4 * MIB) + fill(box / "stdout", 4 * MIB)
    assert MIB * 3 // 4 <= written <= MIB
    # Others are not limited.
    assert fill(disk / "other", 2 * MIB) == 2 * MIB
    ending = isolator.end("r1")
    assert ending.exceeded is not None
    assert ending.exceeded.reason is Reason.DISK_LIMIT
    assert ending.exceeded.message == "its sandbox reached its limit of 1.0 MiB"
    assert ending.usage is not None
    assert MIB - 65536 <= ending.usage.disk_bytes <= MIB
    isolator.forget("r1")
    assert fill(box / "a/f", 2 * MIB) == 2 * MIB


def test_the_kernel_refuses_files_beyond_those_of_the_limit(
    disk: Path, isolator: DiskIsolator
) -> None:
    with Sandboxes(disk).create(KEY) as sandbox, closing(ProjectQuotas(disk)) as quotas:
        box = Path(sandbox.path)
        fd = os.open(box, os.O_RDONLY)
        quotas.limit(fd, MIB, 10)
        box.chmod(0o777)
        line = "for n in $(seq 20); do : >f$n || exit 7; done"
        done = subprocess.run(["sh", "-c", line], cwd=box, user=ORDINARY, timeout=90)
        os.close(fd)
    assert done.returncode != 0
    assert len(list(box.glob("f*"))) == 9, "the directory counts"


def test_the_next_agent_finds_the_id_of_a_sandbox(disk: Path, isolator: DiskIsolator) -> None:
    sandboxes = Sandboxes(disk)
    with sandboxes.create(KEY) as sandbox:
        isolator.prepare(LAUNCH)
    fill(Path(sandbox.path) / "f", MIB // 2)
    quotas, fd = ProjectQuotas(disk), sandboxes.open_to_list(KEY)
    try:
        project = project_of(fd)
        assert MIB // 2 <= quotas.used(fd) < MIB
        quotas.limit(fd, 3 * MIB)
        assert project_of(fd) == project
        assert fill(Path(sandbox.path) / "f", 2 * MIB) == 2 * MIB
    finally:
        os.close(fd)
        quotas.close()


def test_a_file_system_without_quotas_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"."):
        ProjectQuotas(tmp_path)
