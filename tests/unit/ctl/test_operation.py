"""Confirmation of operations that cannot be undone."""

from __future__ import annotations

import io

import pytest

from croupier.cli.connection import Master
from croupier.cli.flags import CHANGE, Change
from croupier.ctl import operation
from croupier.ctl.operation import Preview, confirm
from croupier.model.errors import Conflict, InvalidRequest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def preview(master: Master) -> Preview:
    return Preview("m-A1", {"agent": "m-A1"}, ["agent m-A1 (h1) has 2 tasks"])


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Preview("m-A1", {"agent": "m-A1"}, ["agent m-A1 (h1) has 2 tasks"])
    monkeypatch.setattr(operation, "run", lambda *_: found)


def confirmed(
    monkeypatch: pytest.MonkeyPatch,
    typed: io.StringIO,
    change: Change = CHANGE,
    *,
    yes: bool = False,
) -> str | None:
    monkeypatch.setattr("sys.stdin", typed)
    return confirm("h1", preview, change, yes=yes)


@pytest.mark.usefixtures("_offline")
def test_a_yes_confirms_the_object_that_was_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirmed(monkeypatch, Terminal("YES \n")) == "m-A1"
    assert "agent m-A1 (h1) has 2 tasks\ntype yes to continue: " in capsys.readouterr().out


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("typed", ["", "y\n", "no\n"])
def test_any_other_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    with pytest.raises(Conflict, match="nothing was changed"):
        confirmed(monkeypatch, Terminal(typed))


@pytest.mark.usefixtures("_offline")
def test_without_a_terminal_a_flag_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="--yes"):
        confirmed(monkeypatch, io.StringIO("yes\n"))
    assert confirmed(monkeypatch, io.StringIO(), yes=True) == "h1"


@pytest.mark.usefixtures("_offline")
def test_a_dry_run_confirms_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert confirmed(monkeypatch, Terminal("yes\n"), Change(dry_run=True), yes=True) is None
    assert confirmed(monkeypatch, Terminal("yes\n"), Change(dry_run=True, as_json=True)) is None
    assert '"dry_run": true' in capsys.readouterr().out
