"""The proof from epochs finds leaders that overlap and orders without a commit."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.real.witness import Witnesses, read_witnesses

MASTER = ("begin 1 1.0 t1", "commit 1 1.0 1.1", "begin 2 2.0 t2", "commit 2 2.0 2.1")


def kinds(**lines: tuple[str, ...]) -> list[str]:
    witnesses = Witnesses()
    for daemon, written in lines.items():
        witnesses.add(daemon, written)
    return [violation.kind for violation in witnesses.check()]


def test_terms_in_sequence_are_clean() -> None:
    assert kinds(m1=MASTER, a1=("launch 1 1.2 t1", "launch 2 2.2 t2")) == []


def test_a_confirmed_commit_after_a_newer_term_is_an_overlap() -> None:
    assert kinds(m1=(*MASTER, "begin 1 2.2", "commit 1 2.2 2.3")) == ["two_leaders"]


def test_a_commit_in_flight_while_a_newer_term_begins_is_none() -> None:
    assert kinds(m1=(*MASTER, "begin 1 2.05", "commit 1 2.05 2.3")) == []


def test_a_refused_commit_of_an_older_term_is_none() -> None:
    assert kinds(m1=(*MASTER, "begin 1 2.2 t3")) == []


def test_an_agent_that_obeys_an_older_term_is_found() -> None:
    orders = ("launch 2 2.2 t2", "launch 1 2.3 t1")
    assert kinds(m1=MASTER, a1=orders) == ["old_order"]


def test_an_order_of_each_agent_is_judged_alone() -> None:
    assert kinds(m1=MASTER, a1=("launch 2 2.2 t2",), a2=("launch 1 2.3 t1",)) == []


def test_an_order_without_a_commit_is_found() -> None:
    assert kinds(m1=MASTER, a1=("launch 2 2.2 t9",)) == ["uncommitted"]
    assert kinds(m1=MASTER, a1=("launch 1 1.2 t2",)) == ["uncommitted"]


def test_a_newer_term_may_resend_an_order() -> None:
    assert kinds(m1=MASTER, a1=("launch 2 2.2 t1",)) == []


def test_a_half_written_line_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "a1.witness").write_text("launch 1 1.2 t1\nlaunch 1 1.3 t")
    assert [launch.task for launch in read_witnesses(tmp_path).launches] == ["t1"]
