"""Watching of sandboxes with disk limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from croupier.agent.core.events import NO_ENDING, LimitExceeded
from croupier.agent.core.tasks import Key
from croupier.agent.isolation import disk, disk_watch
from croupier.agent.isolation.disk import DiskIsolator, with_disk
from croupier.agent.isolation.disk_size import HiddenFiles
from croupier.agent.isolation.disk_watch import MIB, DiskWatch, Room
from croupier.agent.isolation.isolator import Launch
from croupier.agent.sandbox import Sandboxes
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.isolation import Limits
from croupier.model.resources import Resources
from croupier.model.task import Command, Reason, TaskInfo


def key(name: str = "t") -> Key:
    return FrameworkId("F"), TaskId(name)


class Watch:
    """A watch with a clock and a disk that the test sets."""

    def __init__(self, root: Path) -> None:
        (root / "sandboxes").mkdir()
        self.sandboxes = Sandboxes(root / "sandboxes")
        self.told: list[LimitExceeded] = []
        self.at, self.free, self.opened = 100.0, 10_000 * MIB, 0
        self.size = 20_000 * MIB
        hidden = HiddenFiles(None)
        self.watch = DiskWatch(
            self.open,
            lambda: Room(self.free, self.size),
            self.told.append,
            hidden,
            now=lambda: self.at,
        )

    def open(self, key: Key) -> int:
        self.opened += 1
        return self.sandboxes.open_to_list(key)

    def run(self, limit: int, name: str = "t") -> Path:
        with self.sandboxes.create(key(name)) as sandbox, sandbox.streams():
            self.watch.add(f"r-{name}", key(name), limit)
            return Path(sandbox.path)

    async def after(self, seconds: float) -> None:
        self.at += seconds
        await self.watch.check()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Watch]:
    world = Watch(tmp_path)
    yield world
    world.watch.close()
    assert open_below(tmp_path) == []


def open_below(root: Path) -> list[str]:
    """Return the descriptors of this process for files below `root`."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(link.readlink()))
    return [path for path in found if path.startswith(str(root))]


def fill(path: Path, size: int, name: str = "file") -> None:
    (path / name).write_bytes(os.urandom(size))


async def test_a_sandbox_above_its_limit_is_told_with_limit_and_peak(world: Watch) -> None:
    box = world.run(MIB)
    fill(box, 2 * MIB)
    await world.after(1)
    (told,) = world.told
    assert (told.key, told.run, told.exceeded.reason) == (key(), "r-t", Reason.DISK_LIMIT)
    assert told.exceeded.message == "disk limit of 1.0 MiB exceeded; peak 2.0 MiB"


async def test_it_is_told_again_until_the_run_is_removed(world: Watch) -> None:
    box = world.run(MIB)
    fill(box, 2 * MIB)
    for _ in range(3):
        await world.after(1)
    assert len(world.told) == 3
    world.watch.remove("r-t")
    await world.after(10)
    assert len(world.told) == 3
    assert len(world.watch) == 0


async def test_a_quiet_sandbox_is_measured_every_5_s(world: Watch) -> None:
    world.run(MIB)
    await world.after(1)
    for _ in range(20):
        await world.after(0.5)
    assert world.opened == 3


async def test_a_growing_sandbox_is_measured_before_it_reaches_its_limit(world: Watch) -> None:
    box = world.run(10 * MIB)
    await world.after(1)
    fill(box, 2 * MIB)
    await world.after(5)
    before = world.opened
    # At 2 MiB in 5 s, 8 MiB more take 20 s: as usual.
    await world.after(4.9)
    assert world.opened == before
    fill(box, 6 * MIB, "more")
    await world.after(0.2)
    # At 6 MiB in 5 s, 2 MiB more take 1.7 s.
    await world.after(1)
    assert world.opened == before + 2


async def test_a_disk_that_fills_makes_sandboxes_due(world: Watch) -> None:
    box = world.run(10 * MIB)
    for _ in range(2):
        await world.after(1)
    world.free -= 4 * MIB
    await world.after(0.6)
    assert world.opened == 2
    fill(box, 11 * MIB)
    world.free -= 8 * MIB
    await world.after(0.1)
    assert [told.key for told in world.told] == [key()]


async def test_a_missing_sandbox_does_no_harm(world: Watch) -> None:
    world.watch.add("r-no", key("no"), MIB)
    box = world.run(MIB)
    fill(box, 2 * MIB)
    await world.after(1)
    assert [told.run for told in world.told] == ["r-t"]


async def test_a_sandbox_replaced_by_a_link_is_not_followed(world: Watch, tmp_path: Path) -> None:
    box = world.run(MIB)
    other = tmp_path / "other"
    other.mkdir()
    fill(other, 3 * MIB)
    box.rename(tmp_path / "moved")
    box.symlink_to(other)
    await world.after(1)
    assert world.told == []


async def test_a_large_sandbox_is_measured_in_several_passes(
    world: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "STEP_FILES", 10)
    monkeypatch.setattr(disk_watch, "PASS_S", 0.0)
    box = world.run(MIB)
    for number in range(100):
        fill(box, 4096, f"f{number}")
    small = world.run(MIB, "small")
    fill(small, 2 * MIB)
    for _ in range(30):
        await world.after(0.1)
    assert [told.run for told in world.told][:1] == ["r-small"], "the small one is not starved"
    watched = world.watch.get("r-t")
    assert watched is not None
    assert 100 * 4096 <= watched.size < MIB
    assert world.opened < 10


async def test_a_run_removed_during_a_measurement_leaves_no_descriptor(
    world: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "STEP_FILES", 1)
    monkeypatch.setattr(disk_watch, "PASS_S", 0.0)
    world.run(MIB)
    await world.after(1)
    assert open_below(tmp_path)
    world.watch.remove("r-t")
    assert open_below(tmp_path) == []


async def test_the_isolator_uses_the_tasks_limit_its_resources_or_the_default(world: Watch) -> None:
    isolator = DiskIsolator(world.watch, Limits(disk=3_000), world.sandboxes)
    infos = {
        "own": TaskInfo(TaskId("own"), Command(("x",)), Resources.parse("cpus:1;disk:2"),
                        limits=Limits(disk=5_000)),
        "charged": TaskInfo(TaskId("charged"), Command(("x",)), Resources.parse("disk:2")),
        "default": TaskInfo(TaskId("default"), Command(("x",)), Resources.parse("cpus:1")),
    }  # fmt: skip
    for name, info in infos.items():
        launch = Launch(f"r-{name}", key(name), info, "", ("x",), {})
        assert isolator.prepare(launch) is launch
    limits = {}
    for name in infos:
        watched = world.watch.get(f"r-{name}")
        assert watched is not None
        limits[name] = watched.limit
    assert limits == {"own": 5 * MIB, "charged": 2 * MIB, "default": 3 * MIB}
    unlimited = DiskIsolator(world.watch, Limits(), world.sandboxes)
    unlimited.prepare(Launch("r-none", key("none"), infos["default"], "", ("x",), {}))
    assert world.watch.get("r-none") is None
    assert unlimited.end("r-none") == NO_ENDING
    assert unlimited.usage("r-none") is None


async def test_the_end_tells_the_size_and_the_limit_that_was_exceeded(world: Watch) -> None:
    isolator = DiskIsolator(world.watch, Limits(), world.sandboxes)
    box = world.run(MIB)
    fill(box, 300_000)
    ending = isolator.end("r-t")
    assert ending.usage is not None
    assert 300_000 <= ending.usage.disk_bytes < MIB
    assert ending.exceeded is None
    fill(box, 2 * MIB, "more")
    await world.after(1)
    told = isolator.end("r-t")
    assert told.exceeded is not None
    assert told.exceeded.reason is Reason.DISK_LIMIT
    isolator.forget("r-t")
    assert isolator.end("r-t") == NO_ENDING


async def test_a_fast_writer_is_measured_at_once(world: Watch) -> None:
    box = world.run(64 * MIB)
    fill(box, 65 * MIB)
    world.free -= 65 * MIB
    await world.after(0.1)
    assert [told.run for told in world.told] == ["r-t"]


async def test_many_files_exceed_a_limit_of_disk(
    world: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "LEAST_FILES", 50)
    box = world.run(64 * 16 * 1024)
    for number in range(63):
        (box / f"f{number}").touch()
    await world.after(1)
    (told,) = world.told
    assert told.exceeded.message == "limit of 64 files exceeded, for a disk limit of 1.0 MiB"


async def test_a_low_disk_ends_the_task_furthest_over_its_request(world: Watch) -> None:
    """One at a time, and none that frees little."""
    for name, request, size in (("modest", 40, 30), ("over", 1, 12), ("far", 0, 20), ("new", 0, 1)):
        box = world.run(1000 * MIB, name)
        world.watch.add(f"r-{name}", key(name), 1000 * MIB, request * MIB)
        fill(box, size * MIB)
    await world.after(1)
    assert world.told == []
    world.size, world.free = 8 * 100 * MIB, 40 * MIB
    await world.after(3)
    assert world.told == [], "the useful part of 100 MiB is 25"
    world.size = 8 * 40 * MIB + 8
    world.free = 39 * MIB
    await world.after(3)
    assert {told.run for told in world.told} == {"r-far"}
    assert world.told[0].exceeded.reason is Reason.DISK_LIMIT
    message = world.told[0].exceeded.message
    assert message.startswith("the disk of the agent was low: 39.0 MiB of 320.0 MiB were free; ")
    assert message.endswith("took 20.0 MiB, 20.0 MiB more than the 0.0 MiB that it asked for")
    world.watch.remove("r-far")
    world.told.clear()
    await world.after(3)
    assert world.told == [], "its files are being removed"
    await world.after(20)
    assert {told.run for told in world.told} == {"r-over"}
    world.watch.remove("r-over")
    await world.after(60)
    assert len(world.watch) == 2


async def test_the_files_of_a_task_that_ended_for_a_low_disk_are_removed(world: Watch) -> None:
    isolator = DiskIsolator(world.watch, Limits(), world.sandboxes)
    box = world.run(1000 * MIB)
    fill(box, 20 * MIB)
    (box / "stdout").write_text("kept")
    world.size, world.free = 8 * 40 * MIB, 39 * MIB
    await world.after(1)
    assert world.told
    isolator.forget("r-t")
    assert sorted(path.name for path in box.iterdir()) == ["stderr", "stdout"]
    (moved,) = world.sandboxes.take_replaced()
    assert [path.name for path in moved.iterdir()] == ["file"]


def test_the_default_is_a_part_of_the_file_system_but_no_more_than_the_agent_has(
    tmp_path: Path,
) -> None:
    part = with_disk(Limits(), tmp_path, 0).disk
    assert part is not None
    assert (part > 5000, part % 1000) == (True, 0)
    assert with_disk(Limits(), tmp_path, 5000).disk == 5000
    assert with_disk(Limits(disk=7), tmp_path, 5000).disk == 7


def test_the_default_is_a_limit_on_a_tiny_file_system_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_room", lambda _: Room(2 * MIB, 3 * MIB))
    assert with_disk(Limits(), tmp_path, 0).disk == 1000
