"""What commands ask and say before they change something, and why tasks are refused."""

from __future__ import annotations

import io
from typing import Any

import pytest

from croupier.cli.connection import Master
from croupier.cli.flags import CHANGE, Change
from croupier.ctl import operation, task_output
from croupier.ctl.operation import Preview, confirm
from croupier.ctl.task_output import TaskName, advising
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.net.address import Address
from croupier.net.transport import make_channel

# Confirmation of operations that cannot be undone.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


FOUND = Preview("m-A1", {"agent": "m-A1"}, ["agent m-A1 (h1) has 2 tasks"])


async def preview(master: Master) -> Preview:
    return FOUND


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "run", lambda *_: FOUND)


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


# Refusals of requests about a task, with the next step.


ADDRESS = Address("127.0.0.1", 1)
MISSING = "no task 't1' of framework web"
TASKS = "croupier tasks lists the tasks"


@pytest.mark.parametrize(
    ("found", "framework_id", "advice"),
    [
        ({"framework_id": "F1"}, "", TASKS),
        ({"framework_id": "web"}, "web", TASKS),
        (Unavailable("gone"), "web", TASKS),
        (NotFound("no framework 'web'"), "web", "no framework 'web'"),
    ],
)
async def test_a_missing_task_is_told_with_what_is_wrong_with_its_framework(
    monkeypatch: pytest.MonkeyPatch, found: Any, framework_id: str, advice: str
) -> None:
    async def find_framework(master: Master, named: str) -> Any:
        if isinstance(found, CroupierError):
            raise found
        return found

    monkeypatch.setattr(task_output, "find_framework", find_framework)
    assert await told(NotFound(MISSING), TaskName("t1", framework_id)) == f"{MISSING}; {advice}"


async def told(error: CroupierError, task: TaskName) -> str:
    async with make_channel(ADDRESS) as channel:
        with pytest.raises(type(error)) as raised:
            async with advising(task, Master(ADDRESS, channel)):
                raise error
    return str(raised.value)
