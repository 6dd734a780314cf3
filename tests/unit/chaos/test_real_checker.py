"""The checker of the real chaos suite finds each kind of violation in synthetic records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.model.task import MASTER_SEQUENCE
from tests.chaos.real.checker import Excuse, check_tasks, unsettled
from tests.chaos.real.journal import (
    Answered,
    Asked,
    Begun,
    Entry,
    KillAnswered,
    KillAsked,
    Update,
    Void,
)
from tests.chaos.real.judge import count_lines
from tests.chaos.real.ledger import Ledger, parse_ledger
from tests.chaos.real.work import Work, work_named, work_of

SEED = 1


def _first(wanted: str) -> str:
    """Return the id of the first task that exits with 0 or another code, is killed, or evades."""
    for number in range(1, 100):
        work = work_of(SEED, "w", number)
        kind = (
            "evades"
            if work.evades
            else "kill"
            if work.kill_after_s is not None
            else "fails"
            if work.code
            else "ok"
        )
        if kind == wanted:
            return work.task_id
    raise AssertionError(wanted)


OK, FAILS, ENDLESS = _first("ok"), _first("fails"), _first("kill")
EVADES = _first("evades")
CODE = work_of(SEED, "w", int(FAILS.rpartition("-")[2])).code


def update(
    task_id: str, state: str, sequence: int, code: int | None = None, reason: str = "NONE",
    handled: bool = True,
) -> Update:  # fmt: skip
    return Update(task_id, "a1", state, sequence, reason, code, None, 1, "", handled)


def launched(task_id: str) -> list[Entry]:
    return [Begun(1), Asked((task_id,)), Answered(task_id, "", 0.0)]


def whole(task_id: str = OK) -> list[Entry]:
    """Return a task's entries without a fault."""
    return [*launched(task_id), update(task_id, "RUNNING", 1), update(task_id, "FINISHED", 2, 0)]


def found(entries: list[Entry], ran: str, excuses: dict[str, Excuse] | None = None) -> list[str]:
    return [violation.kind for violation in check_tasks(works, {"w": entries}, log(ran), excuses)]


def works(task_id: str) -> Work:
    return work_named(SEED, task_id)


def log(text: str) -> Ledger:
    return parse_ledger(text.replace(";", "\n"))


def test_a_task_without_faults_is_clean() -> None:
    assert found(whole(), f"start {OK} 9;end {OK}") == []


def test_only_a_task_that_evades_its_disk_limit_ends_with_it() -> None:
    for task_id, kinds in ((EVADES, []), (OK, ["wrong_end"])):
        end = update(task_id, "FAILED", 2, None, "DISK_LIMIT")
        entries = [*launched(task_id), update(task_id, "RUNNING", 1), end]
        assert found(entries, f"start {task_id} 9") == kinds
    assert found(whole(EVADES), f"start {EVADES} 9") == ["wrong_end"]


def test_a_refused_task_is_clean_and_settled() -> None:
    entries: list[Entry] = [Begun(1), Asked((OK,)), Answered(OK, "Conflict: stale", 0.0)]
    assert found(entries, "") == []
    assert unsettled(entries) == []


@pytest.mark.parametrize(
    ("entries", "ran", "kind"),
    [
        (launched(OK), f"start {OK} 9;end {OK}", "lost"),
        (launched(OK), "", "lost"),
        ([Begun(1), Asked((OK,))], "", "unanswered"),
        (whole(), f"start {OK} 9;start {OK} 10;end {OK}", "ran_twice"),
        ([Begun(1), Asked((OK,)), Answered(OK, "no", 0.0)], f"start {OK} 9", "ran_unasked"),
        ([Begun(1), Asked((OK,)), Void(OK)], f"start {OK} 9", "ran_unasked"),
        ([], f"start {OK} 9", "ran_unasked"),
        (
            [Begun(1), Asked((OK,)), Void(OK), update(OK, "RUNNING", 1)],
            "",
            "reported_though_refused",
        ),
        ([*whole(), Void(OK)], f"start {OK} 9;end {OK}", "two_verdicts"),
        ([*whole(), update(OK, "FINISHED", 2, 0)], f"start {OK} 9;end {OK}", "reported_twice"),
        (
            [*whole(), update(OK, "FINISHED", 2, 0, handled=False)],
            f"start {OK} 9;end {OK}",
            "reported_twice",
        ),
        ([*whole(), update(OK, "RUNNING", 3)], f"start {OK} 9;end {OK}", "reported_after_end"),
        ([*launched(OK), update(OK, "FINISHED", 2, 0)], f"start {OK} 9;end {OK}", "skipped"),
        (
            [*launched(OK), update(OK, "RUNNING", 2), update(OK, "RUNNING", 1)],
            f"start {OK} 9",
            "out_of_order",
        ),
        (
            [*launched(ENDLESS), KillAsked(ENDLESS), KillAnswered(ENDLESS, "no such task")],
            f"start {ENDLESS} 9",
            "forgotten",
        ),
    ],
)
def test_each_kind_of_violation_is_found(entries: list[Entry], ran: str, kind: str) -> None:
    assert kind in found(entries, ran)


@pytest.mark.parametrize(
    ("task_id", "end", "ran"),
    [
        (OK, update(OK, "FINISHED", 1, 0), f"start {OK} 9"),
        (OK, update(OK, "FAILED", 1, 7), f"start {OK} 9;end {OK}"),
        (FAILS, update(FAILS, "FINISHED", 1, 0), f"start {FAILS} 9;end {FAILS}"),
        (FAILS, update(FAILS, "FINISHED", 1, CODE), f"start {FAILS} 9;end {FAILS}"),
        (OK, update(OK, "KILLED", 1), f"start {OK} 9"),
        (OK, update(OK, "GONE", MASTER_SEQUENCE), f"start {OK} 9"),
        (OK, update(OK, "DROPPED", MASTER_SEQUENCE), ""),
        (OK, update(OK, "LOST", 1), f"start {OK} 9;end {OK}"),
        (OK, update(OK, "FAILED", 1, reason="EXECUTOR_TERMINATED"), f"start {OK} 9"),
    ],
)
def test_a_false_terminal_update_is_found(task_id: str, end: Update, ran: str) -> None:
    assert found([*launched(task_id), end], ran) == ["wrong_end"]


def test_the_rest_of_a_group_ends_with_it() -> None:
    first, rest = "w-first-1", "w-rest-2"
    code = works(first).code
    state = "FAILED" if code else "FINISHED"
    asked: list[Entry] = [Begun(1), Asked((first, rest))]
    launched = [*asked, Answered(first, "", 0.0), Answered(rest, "", 0.0)]
    ends = [update(first, state, 1, code), update(rest, "KILLED", 1, None, "GROUP_ENDED")]
    ran = f"start {first} 8;start {rest} 9;end {first}"
    assert found([*launched, *ends], ran) == []
    assert found([*launched, ends[0]], ran) == ["lost"]
    other = update(first, "KILLED", 1, None, "GROUP_ENDED")
    assert found([*launched, other, ends[1]], ran) == ["wrong_end"]
    in_part = [*asked, Answered(first, "", 0.0), Answered(rest, "it does not fit", 0.0), ends[0]]
    assert found(in_part, f"start {first} 8;end {first}") == ["group_in_part"]


def test_a_task_that_was_killed_on_request_is_clean() -> None:
    entries: list[Entry] = [
        *launched(ENDLESS), update(ENDLESS, "RUNNING", 1), KillAsked(ENDLESS),
        KillAnswered(ENDLESS, ""), update(ENDLESS, "KILLED", 2),
    ]  # fmt: skip
    assert found(entries, f"start {ENDLESS} 9") == []


def test_a_kill_finds_brief_tasks_before_between_and_after_their_lines() -> None:
    brief = work_of(SEED, "w-brief", 1)
    task_id = brief.task_id
    kill: list[Entry] = [KillAsked(task_id), KillAnswered(task_id, "")]
    killed: list[Entry] = [*launched(task_id), *kill, update(task_id, "KILLED", 1)]
    for ran in ("", f"start {task_id} 9", f"start {task_id} 9;end {task_id}"):
        assert found(killed, ran) == []
    state = "FAILED" if brief.code else "FINISHED"
    late: list[Entry] = [*launched(task_id), *kill, update(task_id, state, 1, brief.code)]
    assert found(late, f"start {task_id} 9;end {task_id}") == []
    assert found(late, f"start {task_id} 9") == ["wrong_end"]


def test_an_answer_to_reconcile_may_be_ahead_of_updates_and_repeat_them() -> None:
    running = replace(update(OK, "RUNNING", 2), is_reconciled=True)
    again = replace(running, handled=False)
    end = update(OK, "FINISHED", 3, 0)
    ran = f"start {OK} 9;end {OK}"
    assert found([Begun(1), Asked((OK,)), Begun(2), running, again, end], ran) == []
    skipped = replace(end, sequence=4)
    assert found([Begun(1), Asked((OK,)), Begun(2), running, skipped], ran) == ["skipped"]


def test_lined_up_tasks_are_counted_from_the_metrics_of_a_master() -> None:
    metrics = (
        "# TYPE croupier_line_tasks_total counter\n"
        'croupier_line_tasks_total{outcome="lined_up"} 170.0\n'
        'croupier_line_tasks_total{outcome="started"} 118.0\n'
        "croupier_tasks_lined_up 3.0\n"
    )
    assert count_lines(metrics) == {"lined_up": 170, "started": 118}


def test_a_kill_that_came_too_late_is_clean() -> None:
    entries: list[Entry] = [*whole(), KillAsked(OK), KillAnswered(OK, "no such task")]
    assert found(entries, f"start {OK} 9;end {OK}") == []


def test_only_explained_losses_are_clean() -> None:
    shim = {OK: Excuse.SHIM_KILLED}
    ended: list[Entry] = [*launched(OK), update(OK, "FAILED", 1, reason="EXECUTOR_TERMINATED")]
    assert found(ended, f"start {OK} 9", shim) == []
    assert found([*launched(OK), update(OK, "GONE", 1)], f"start {OK} 9", shim) == ["wrong_end"]
    full = {OK: Excuse.DISK_FULL}
    dropped: list[Entry] = [*launched(OK), update(OK, "DROPPED", MASTER_SEQUENCE)]
    assert found(dropped, "", full) == []
    assert found(dropped, f"start {OK} 9", full) == ["wrong_end"]
    away = update(OK, "DROPPED", MASTER_SEQUENCE, reason="AGENT_RESTARTED")
    assert found([*launched(OK), away], "") == []
    assert found([*launched(OK), away], f"start {OK} 9") == ["wrong_end"]


def test_updates_repeated_after_a_crash_are_clean() -> None:
    """The program died between handling an update and acknowledging it."""
    entries: list[Entry] = [*whole(), Begun(2), update(OK, "FINISHED", 2, 0, handled=False)]
    assert found(entries, f"start {OK} 9;end {OK}") == []


def test_an_accept_known_by_updates_alone_counts() -> None:
    entries: list[Entry] = [Begun(1), Asked((OK,)), Begun(2), update(OK, "RUNNING", 1)]
    assert found(entries, f"start {OK} 9") == ["lost"]
    assert unsettled(entries) == [OK]
