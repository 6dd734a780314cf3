"""Leftovers of ended tasks on agents are found."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.real.leftovers import check_agent

CLEAN = """# HELP croupier_agent_tasks Tasks that are not settled, by state.
croupier_agent_tasks{state="RUNNING"} 0.0
croupier_agent_unacknowledged_updates 0.0
croupier_agent_sandboxes_kept 17.0
"""


def test_an_agent_without_leftovers_is_clean(tmp_path: Path) -> None:
    assert check_agent("a1", tmp_path, CLEAN) == []
    (tmp_path / "runs").mkdir()
    assert check_agent("a1", tmp_path, CLEAN) == []


def test_tasks_updates_and_run_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/1").touch()
    dirty = CLEAN.replace(" 0.0", " 2.0")
    found = check_agent("a1", tmp_path, dirty)
    assert [violation.kind for violation in found] == ["kept"] * 3


def test_an_agent_without_metrics_is_found(tmp_path: Path) -> None:
    assert [violation.kind for violation in check_agent("a1", tmp_path, "")] == ["kept"] * 2
