"""The directories that the tasks of a group share."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from croupier.agent.core.tasks import GroupKey
from croupier.agent.sandbox import Sandboxes
from croupier.agent.shared_directories import SharedDirectories
from croupier.model.ids import FrameworkId

G1: GroupKey = (FrameworkId("F1"), "g1")
G2: GroupKey = (FrameworkId("F1"), "g2")


@pytest.fixture
def sandboxes(tmp_path: Path) -> Sandboxes:
    (tmp_path / "sandboxes").mkdir()
    (tmp_path / "groups").mkdir()
    return Sandboxes(tmp_path / "sandboxes")


@pytest.fixture
def groups(tmp_path: Path, sandboxes: Sandboxes) -> SharedDirectories:
    return SharedDirectories(tmp_path / "groups", sandboxes)


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_all_tasks_of_a_group_get_one_path_that_others_cannot_guess(
    groups: SharedDirectories,
) -> None:
    path = groups.make(G1)
    assert groups.make(G1) == path
    assert groups.make(G2) != path
    assert mode_of(path) == 0o777
    above = Path(path).parent
    assert [mode_of(above), mode_of(above.parent)] == [0o711, 0o711]
    assert len(Path(path).name) == 32


def test_files_of_one_user_are_for_all(groups: SharedDirectories) -> None:
    path = groups.make(G1)
    if not os.listxattr(path):
        pytest.skip("this file system has no access control lists")
    made = Path(path, "file")
    before = os.umask(0o027)
    try:
        made.touch()
    finally:
        os.umask(before)
    assert mode_of(made) == 0o666


def test_a_removed_one_goes_to_the_trash(
    groups: SharedDirectories, sandboxes: Sandboxes, tmp_path: Path
) -> None:
    Path(groups.make(G1), "file").touch()
    groups.make(G2)
    groups.remove(G1)
    groups.remove(G1)
    (moved,) = sandboxes.take_replaced()
    assert moved.parent == sandboxes.trash
    assert [path.name for path in (tmp_path / "groups/F1").iterdir()] == ["g2"]
    groups.remove(G2)
    assert not list((tmp_path / "groups").iterdir())


def test_those_of_unknown_groups_are_removed(
    groups: SharedDirectories, sandboxes: Sandboxes
) -> None:
    kept = groups.make(G1)
    groups.make(G2)
    groups.make((FrameworkId("F2"), "g1"))
    groups.keep({G1})
    assert len(sandboxes.take_replaced()) == 2
    assert groups.make(G1) == kept


def test_a_link_in_its_place_is_not_followed(groups: SharedDirectories, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "groups/F1").symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        groups.make(G1)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("name", ["..", "../sandboxes", "", ".", "a/b", "a\0b"])
def test_no_id_leads_elsewhere(name: str, groups: SharedDirectories, tmp_path: Path) -> None:
    for group in ((FrameworkId(name), "g1"), (FrameworkId("F1"), name)):
        for use in (groups.make, groups.path, groups.remove):
            with pytest.raises(OSError, match="Not the name of a directory"):
                use(group)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["groups", "sandboxes"]
    assert list(tmp_path.glob("*/*")) == []
