"""The programs of agents that `croupier local` keeps."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from croupier.ctl.local.programs import KeptPrograms


def agent_with(tmp_path: Path, name: str, *programs: str) -> Path:
    work_dir = tmp_path / name
    work_dir.mkdir()
    for program in programs:
        (work_dir / program).write_text(program)
        (work_dir / program).chmod(0o755)
    return work_dir


def test_a_program_is_kept_for_the_next_agent(tmp_path: Path) -> None:
    programs = KeptPrograms.of_user({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    programs.keep(agent_with(tmp_path, "first", "shim-1", "checkpoint.log"))
    assert [each.name for each in (tmp_path / "cache/croupier").iterdir()] == ["shim-1"]
    programs.place(tmp_path / "second")
    placed = tmp_path / "second/shim-1"
    assert placed.read_text() == "shim-1"
    assert stat.S_IMODE(placed.stat().st_mode) == 0o755


def test_only_the_programs_of_the_last_agent_are_kept(tmp_path: Path) -> None:
    programs = KeptPrograms(tmp_path / "kept")
    programs.keep(agent_with(tmp_path, "first", "shim-1"))
    programs.keep(agent_with(tmp_path, "second", "shim-2"))
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["shim-2"]


def test_a_directory_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    programs = KeptPrograms(kept)
    programs.keep(agent_with(tmp_path, "first", "shim-1"))
    kept.chmod(0o777)
    programs.keep(agent_with(tmp_path, "second", "shim-2"))
    assert [each.name for each in kept.iterdir()] == ["shim-1"]
    programs.place(tmp_path / "third")
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("environment", [{}, {"HOME": "", "XDG_CACHE_HOME": "relative"}])
def test_a_user_without_a_home_keeps_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    programs = KeptPrograms.of_user(environment)
    programs.keep(agent_with(tmp_path, "first", "shim-1"))
    programs.place(tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_an_agent_without_programs_and_a_file_in_place_of_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for programs in (KeptPrograms(tmp_path / "none"), KeptPrograms(tmp_path / "file")):
        programs.keep(agent_with(tmp_path, f"agent{id(programs)}"))
        programs.place(tmp_path / "next")
    assert not (tmp_path / "none").exists()
