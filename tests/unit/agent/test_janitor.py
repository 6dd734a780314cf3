from __future__ import annotations

import os
from pathlib import Path

from croupier.agent.core.tasks import Key
from croupier.agent.janitor import Janitor
from croupier.agent.sandbox import Sandboxes
from croupier.model.ids import FrameworkId, TaskId


class Clock:
    """One that a test sets."""

    at = 0.0

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return 0


def key(name: str) -> Key:
    return (FrameworkId("F1"), TaskId(name))


def sandbox(root: Path, name: str) -> Path:
    with Sandboxes(root).create(key(name)) as made:
        return Path(made.path)


async def test_a_sandbox_is_kept_for_a_time_after_its_task(tmp_path: Path) -> None:
    clock = Clock()
    janitor = Janitor(Sandboxes(tmp_path), clock, keep_s=10)
    path = sandbox(tmp_path, "t1")
    janitor.retire(key("t1"))
    clock.at = 9.9
    await janitor.clean()
    assert path.exists()
    clock.at = 10
    await janitor.clean()
    assert not path.exists()
    assert len(janitor) == 0


async def test_the_oldest_go_first_when_there_are_too_many(tmp_path: Path) -> None:
    janitor = Janitor(Sandboxes(tmp_path), Clock(), keep_s=1000, most_kept=150)
    paths = [sandbox(tmp_path, f"t{n}") for n in range(300)]
    for n in range(300):
        janitor.retire(key(f"t{n}"))
    await janitor.clean()
    assert [path.exists() for path in paths] == [False] * 150 + [True] * 150


async def test_what_an_earlier_life_left_is_taken_over_oldest_first(tmp_path: Path) -> None:
    paths = [sandbox(tmp_path, name) for name in ("b", "a", "c")]
    for age, path in enumerate(paths):
        os.utime(path, (1000 + age, 1000 + age))
    janitor = Janitor(Sandboxes(tmp_path), Clock(), most_kept=1)
    janitor.adopt()
    await janitor.clean()
    assert [path.exists() for path in paths] == [False, False, True]


async def test_tasks_without_a_sandbox_and_links_in_its_place_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("precious")
    (tmp_path / "F1").mkdir()
    (tmp_path / "F1" / "link").symlink_to(tmp_path / "elsewhere")
    janitor = Janitor(Sandboxes(tmp_path), Clock(), keep_s=0)
    janitor.retire(key("never-started"))
    janitor.retire(key("link"))
    janitor.retire(key("../elsewhere"))
    await janitor.clean()
    assert (tmp_path / "elsewhere" / "file").exists()
