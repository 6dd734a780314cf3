"""The removal of sandboxes: by age, number and free disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from croupier.agent import janitor as janitor_module
from croupier.agent.core.tasks import Key
from croupier.agent.janitor import HEADROOM, LEAST_S, Janitor, remove_trees, used_share
from croupier.agent.sandbox import Sandboxes
from croupier.model.ids import FrameworkId, TaskId
from tests.harness.still_clock import StillClock


def key(name: str) -> Key:
    return (FrameworkId("F1"), TaskId(name))


def empty(path: Path) -> float:
    """Return the used share at which sandboxes are kept for the full time."""
    return -HEADROOM


def sandbox(sandboxes: Sandboxes, name: str) -> Path:
    with sandboxes.create(key(name), again=True) as made, made.streams():
        return Path(made.path)


def left_by_another(sandboxes: Sandboxes, name: str, written_s: float = 0) -> Path:
    """Create a sandbox that is not marked as in use."""
    path = sandbox(Sandboxes(sandboxes.root), name)
    for each in (path, path / "stdout", path / "stderr"):
        os.utime(each, (written_s, written_s))
    return path


async def test_a_sandbox_is_kept_for_a_time_after_its_task(sandboxes: Sandboxes) -> None:
    clock = StillClock(wall=0)
    janitor = Janitor(sandboxes, clock, keep_s=10, used=empty)
    path = sandbox(sandboxes, "t1")
    janitor.retire(key("t1"))
    clock.at = 9.9
    await janitor.clean()
    assert path.exists()
    clock.at = 10
    await janitor.clean()
    assert not path.parent.exists()
    assert (len(janitor), janitor.removed) == (0, 1)


async def test_the_oldest_are_removed_when_there_are_too_many(sandboxes: Sandboxes) -> None:
    janitor = Janitor(sandboxes, StillClock(wall=0), keep_s=1000, most_kept=150, used=empty)
    paths = [sandbox(sandboxes, f"t{n}") for n in range(300)]
    for n in range(300):
        janitor.retire(key(f"t{n}"))
    await janitor.clean()
    assert [path.exists() for path in paths] == [False] * 150 + [True] * 150


@pytest.mark.parametrize(("used", "allowed_s"), [(0.0, 900), (0.4, 500), (0.8, 100)])
async def test_sandboxes_are_removed_sooner_on_a_fuller_disk(
    sandboxes: Sandboxes, used: float, allowed_s: float
) -> None:
    clock = StillClock(wall=0)
    janitor = Janitor(sandboxes, clock, keep_s=1000, used=lambda path: used)
    path = sandbox(sandboxes, "t1")
    janitor.retire(key("t1"))
    clock.at = allowed_s - 0.1
    await janitor.clean()
    assert path.exists()
    assert janitor.allowed_s == pytest.approx(allowed_s)
    clock.at = allowed_s + 0.1
    await janitor.clean()
    assert not path.exists()


async def test_sandboxes_on_a_full_disk_are_kept_for_readers_only(sandboxes: Sandboxes) -> None:
    clock = StillClock(wall=0)
    janitor = Janitor(sandboxes, clock, keep_s=1e6, used=lambda path: 1 - HEADROOM)
    path = sandbox(sandboxes, "t1")
    janitor.retire(key("t1"))
    clock.at = LEAST_S - 1
    await janitor.clean()
    assert path.exists()
    clock.at = LEAST_S
    await janitor.clean()
    assert not path.exists()


async def test_removal_stops_once_the_disk_has_room(sandboxes: Sandboxes) -> None:
    clock = StillClock(wall=0)

    def used(path: Path) -> float:
        return 0.95 if janitor.removed < 100 else 0.2

    janitor = Janitor(sandboxes, clock, used=used)
    for n in range(250):
        sandbox(sandboxes, f"t{n}")
        janitor.retire(key(f"t{n}"))
    clock.at = 3600
    await janitor.clean()
    assert (janitor.removed, len(janitor)) == (100, 150)


async def test_nothing_is_removed_while_the_disk_cannot_be_read(sandboxes: Sandboxes) -> None:
    def used(path: Path) -> float:
        raise OSError(5, "Input/output error")

    clock = StillClock(wall=0)
    janitor = Janitor(sandboxes, clock, keep_s=1000, used=used)
    path = sandbox(sandboxes, "t1")
    janitor.retire(key("t1"))
    clock.at = 999
    await janitor.clean()
    assert path.exists()


def test_used_share_is_between_0_and_1(tmp_path: Path) -> None:
    assert 0 < used_share(tmp_path) < 1


async def test_an_adopted_sandbox_is_as_old_as_its_output(sandboxes: Sandboxes) -> None:
    clock = StillClock(wall=0)
    clock.wall = 5_000_000
    old, new, future = (left_by_another(sandboxes, *each) for each in (
        ("old", 1000), ("new", 4500), ("future", 9000)
    ))  # fmt: skip
    janitor = Janitor(sandboxes, clock, keep_s=1000, used=empty)
    janitor.adopt()
    await janitor.clean()
    assert [path.exists() for path in (old, new, future)] == [False, True, True]
    clock.at = 500
    await janitor.clean()
    assert [path.exists() for path in (new, future)] == [False, True]


async def test_adopted_sandboxes_are_removed_oldest_first(sandboxes: Sandboxes) -> None:
    paths = [left_by_another(sandboxes, name, 1000 + at) for at, name in enumerate("bac")]
    janitor = Janitor(sandboxes, StillClock(wall=0), most_kept=1, used=empty)
    janitor.adopt()
    await janitor.clean()
    assert [path.exists() for path in paths] == [False, False, True]


async def test_the_sandbox_of_a_live_task_is_kept_at_any_age(sandboxes: Sandboxes) -> None:
    clock = StillClock(wall=0)
    clock.wall = 10**12
    adopted = left_by_another(sandboxes, "adopted", 1)
    started = sandbox(sandboxes, "started")
    janitor = Janitor(sandboxes, clock, keep_s=10, used=lambda path: 1.0)
    janitor.adopt([key("adopted")])
    clock.at = 1e9
    await janitor.clean()
    assert adopted.exists()
    assert started.exists()
    janitor.retire(key("adopted"))
    clock.at += 10
    await janitor.clean()
    assert not adopted.exists()
    assert started.exists()


async def test_a_relaunched_task_keeps_its_sandbox(sandboxes: Sandboxes) -> None:
    clock = StillClock(wall=0)
    janitor = Janitor(sandboxes, clock, keep_s=10, used=empty)
    sandbox(sandboxes, "t1")
    janitor.retire(key("t1"))
    again = sandbox(sandboxes, "t1")
    clock.at = 10
    await janitor.clean()
    assert again.exists()
    janitor.retire(key("t1"))
    clock.at = 20
    await janitor.clean()
    assert not again.exists()


async def test_a_task_relaunched_during_the_removal_keeps_its_sandbox(
    sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StillClock(wall=0)
    janitor = Janitor(sandboxes, clock, keep_s=10, used=empty)
    sandbox(sandboxes, "t1")
    janitor.retire(key("t1"))
    clock.at = 10

    async def launch_meanwhile(paths: Sequence[Path]) -> int:
        (sandbox(sandboxes, "t1") / "mine").touch()
        return await remove_trees(paths)

    monkeypatch.setattr(janitor_module, "remove_trees", launch_meanwhile)
    await janitor.clean()
    assert (sandboxes.root / "F1" / "t1" / "mine").exists()


async def test_missing_sandboxes_and_links_in_their_place_do_no_harm(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("precious")
    (sandboxes.root / "F1").mkdir()
    (sandboxes.root / "F1" / "link").symlink_to(tmp_path / "elsewhere")
    janitor = Janitor(sandboxes, StillClock(wall=0), keep_s=0, used=empty)
    janitor.adopt()
    janitor.retire(key("never-started"))
    janitor.retire(key("link"))
    janitor.retire(key("../elsewhere"))
    await janitor.clean()
    assert (tmp_path / "elsewhere" / "file").exists()
