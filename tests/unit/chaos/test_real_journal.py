"""Journals and ledgers are readable after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.real.journal import Answered, Asked, Begun, Entry, Journal, read_entries
from tests.chaos.real.ledger import parse_ledger
from tests.chaos.real.work import work_named, work_of


def test_entries_are_read_back_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    written: list[Entry] = [Begun(7), Asked(("w-1", "w-2")), Answered("w-1", "", 1.5)]
    for entry in written:
        journal.write(entry)
    journal.close()
    assert read_entries(path) == written


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"kind": "begun", "pid": 1}\n{"kind": "ask')
    journal = Journal(path)
    journal.write(Begun(2))
    journal.close()
    assert read_entries(path) == [Begun(1), Begun(2)]


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "none") == []


def test_the_ledger_lists_running_tasks() -> None:
    ran = parse_ledger("start w-1 11\nstart w-2 12\nend w-1\n")
    assert ran.running() == {"w-2": 12}
    with pytest.raises(ValueError, match="no line"):
        parse_ledger("start w-1\n")


def test_work_follows_from_the_seed_and_the_id() -> None:
    assert work_named(3, "w-x-12") == work_of(3, "w-x", 12)
    assert work_of(3, "w", 1) == work_of(3, "w", 1)
    assert {work_of(3, "w", n).code for n in range(50)} != {0}
