"""Compare what frameworks observed with the tasks that really ran. Pure.

Rule: a task is refused, or runs once. The framework of a launched task receives its terminal
status once, in order, and the status is true. Only an injected fault may excuse a deviation.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from croupier.model.task import MASTER_SEQUENCE, TaskState
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
from tests.chaos.real.ledger import Ledger
from tests.chaos.real.work import KILLS_ITSELF, Work


class Excuse(Enum):
    """Why a task may have ended differently than its specification says."""

    SHIM_KILLED = "its shim was killed"
    DISK_FULL = "its agent's disk was full"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise.

    Attributes:
        kind: one word of a fixed list.
        about: the task, agent, framework or process.
    """

    kind: str
    about: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.about}: {self.detail}".removesuffix(": ")


@dataclass(slots=True)
class History:
    """What a framework recorded about one of its tasks.

    Attributes:
        updates: each update that needs an acknowledgement, with the run of the program that
            received it.
        forgotten: a KILL was answered by NotFound before the terminal status arrived.
    """

    answers: list[str] = field(default_factory=list)
    is_void: bool = False
    kill_asked: bool = False
    forgotten: bool = False
    updates: list[tuple[int, Update]] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Return whether a verdict said that the task was launched."""
        return "" in self.answers

    @property
    def refused(self) -> bool:
        """Return whether a verdict refused the task."""
        return self.is_void or any(self.answers)

    def ends(self) -> list[Update]:
        """Return the terminal updates that were handled."""
        return [update for _, update in self.updates if update.handled and _is_end(update)]


def check_tasks(
    works: Callable[[str], Work],
    frameworks: Mapping[str, Sequence[Entry]],
    ran: Ledger,
    excuses: Mapping[str, Excuse] | None = None,
) -> list[Violation]:
    """Return all violations of a settled workload; `works` specifies the tasks."""
    excused = excuses or {}
    found: list[Violation] = []
    known: set[str] = set()
    for entries in frameworks.values():
        mine = histories(entries)
        for task_id, history in mine.items():
            known.add(task_id)
            work = works(task_id)
            found += _check_verdict(task_id, history, ran)
            found += _check_order(work, history)
            executor = mine.get(work.executor, History())
            found += _check_end(work, history, executor, ran, excused.get(task_id))
        found += _check_groups(works, mine)
    for task_id, pids in ran.starts.items():
        if len(pids) > 1 and not works(task_id).may_run_again:
            found.append(Violation("ran_twice", task_id, f"as {pids}"))
        if task_id not in known:
            found.append(Violation("ran_unasked", task_id, "no framework requested it"))
    return found


def _check_groups(
    works: Callable[[str], Work], known: Mapping[str, History]
) -> Iterator[Violation]:
    """Yield the groups of which one task was launched and another refused."""
    for task_id, history in known.items():
        work = works(task_id)
        if work.is_rest and work.group in known:
            first = known[work.group]
            if (first.accepted and history.refused) or (history.accepted and first.refused):
                answers = f"{first.answers} and {history.answers}"
                yield Violation("group_in_part", work.group, answers)


def histories(entries: Iterable[Entry]) -> dict[str, History]:
    """Return the journal entries of each task."""
    found: dict[str, History] = {}
    run = 0
    for entry in entries:
        match entry:
            case Begun():
                run += 1
            case Asked(task_ids):
                found.update((task_id, History()) for task_id in task_ids)
            case Answered(task_id, error):
                found[task_id].answers.append(error)
            case Void(task_id):
                found[task_id].is_void = True
            case KillAsked(task_id):
                found[task_id].kill_asked = True
            case KillAnswered(task_id, error):
                history = found[task_id]
                history.forgotten |= bool(error) and not history.ends()
            case Update(task_id) if entry.sequence:
                found.setdefault(task_id, History()).updates.append((run, entry))
    return found


def unsettled(entries: Iterable[Entry]) -> list[str]:
    """Return requested tasks that are neither refused nor known to have ended."""
    return [
        task_id
        for task_id, history in histories(entries).items()
        if not history.ends() and (history.accepted or not history.refused)
    ]


def _check_verdict(task_id: str, history: History, ran: Ledger) -> Iterator[Violation]:
    if history.accepted and history.refused:
        yield Violation("two_verdicts", task_id, str(history.answers))
    if not history.refused or history.accepted:
        return
    if task_id in ran.starts:
        yield Violation("ran_unasked", task_id, "it was refused")
    elif history.updates:
        yield Violation("reported_though_refused", task_id, history.updates[0][1].state)


def _check_order(work: Work, history: History) -> Iterator[Violation]:
    task_id = work.task_id
    last: dict[int, int] = {}
    for run, update in history.updates:
        if update.sequence <= last.get(run, 0) and not update.is_reconciled:
            kind = "reported_twice" if update.sequence == last[run] else "out_of_order"
            yield Violation(kind, task_id, f"{update.state} as {update.sequence}")
        last[run] = max(update.sequence, last.get(run, 0))
    handled = [update for _, update in history.updates if update.handled]
    for before, update in zip([None, *handled], handled, strict=False):
        due = 1 + (before.sequence if before else 0)
        if before is not None and _is_end(before):
            yield Violation("reported_after_end", task_id, update.state)
        elif work.may_run_again and update.state == "STARTING" and update.sequence > due:
            # The master itself takes the end of a run after which a task is queued again.
            continue
        elif update.sequence not in (due, MASTER_SEQUENCE) and not update.is_reconciled:
            yield Violation("skipped", task_id, f"{update.sequence} came when {due} was due")


def _check_end(
    work: Work, history: History, executor: History, ran: Ledger, excuse: Excuse | None
) -> Iterator[Violation]:
    ends = history.ends()
    if history.refused and not history.accepted:
        return
    if history.forgotten:
        yield Violation("forgotten", work.task_id, "KILL found no such task before its end")
    if not ends:
        started = "it started" if work.task_id in ran.starts else "it never started"
        if history.accepted or history.updates:
            yield Violation("lost", work.task_id, f"its end was not reported; {started}")
        else:
            yield Violation("unanswered", work.task_id, f"neither verdict nor update; {started}")
        return
    if len(ends) > 1:
        yield Violation("reported_twice", work.task_id, " and ".join(end.state for end in ends))
    problem = _untrue_of_call(work, ends[0], history, executor, ran) if work.executor else ""
    if problem or not work.executor:
        problem = _untrue(work, ends[0], history, ran, excuse)
    if problem:
        yield Violation("wrong_end", work.task_id, f"{_words(ends[0])}: {problem}")


def _untrue(work: Work, end: Update, history: History, ran: Ledger, excuse: Excuse | None) -> str:
    """Return what is false in the reported terminal status; empty if nothing is."""
    started, ended = work.task_id in ran.starts, work.task_id in ran.ends
    match TaskState[end.state]:
        case TaskState.FAILED if work.evades and end.reason == "DISK_LIMIT":
            return "" if started else "it never started"
        case TaskState.FINISHED | TaskState.FAILED if end.exit_code is not None:
            by_code = "FAILED" if end.exit_code else "FINISHED"
            if end.exit_code != work.code or end.state != by_code:
                return f"it exits with {work.code}"
            return "" if ended else "it did not come to its end"
        case TaskState.FAILED if work.code == KILLS_ITSELF and end.signal == signal.SIGKILL:
            return "" if ended else "it did not come to its end"
        case TaskState.DROPPED if work.group and end.reason == "GROUP_ENDED":
            # The launch of the group was lost, and it cannot be launched again as a whole.
            return "it started" if started else ""
        case TaskState.KILLED:
            return _untrue_kill(work, end, history, ended)
        case TaskState.FAILED if excuse is Excuse.SHIM_KILLED:
            return "" if end.reason == "EXECUTOR_TERMINATED" else "that is no reason"
        case TaskState.FAILED | TaskState.DROPPED if excuse is Excuse.DISK_FULL:
            return "it started" if started else ""
        case TaskState.DROPPED if end.reason == "AGENT_RESTARTED":
            # The launch was lost, and the agent that returned has no room for it any more.
            # An earlier run may have.
            return "it started" if started and not work.may_run_again else ""
    return "nothing explains that"


def _untrue_kill(work: Work, end: Update, history: History, ended: bool) -> str:
    """Return what is false in KILLED."""
    match end.reason:
        case "GROUP_ENDED" if work.is_rest:
            return ""
        case "GANG_ENDED" if work.gang:
            return ""
        case "PREEMPTED":
            # With code 0 it has done its work in the grace.
            is_done = ended and end.exit_code == 0
            return "it is to run again" if work.is_requeued and not is_done else ""
    if not history.kill_asked:
        return "no framework requested that"
    # A kill may find a brief task between the line of its end and its exit.
    return "it came to its end" if ended and not work.is_brief else ""


def _untrue_of_call(
    work: Work, end: Update, history: History, executor: History, ran: Ledger
) -> str:
    """Return what is false in the reported end of a task that runs in an executor."""
    started, ended = work.task_id in ran.starts, work.task_id in ran.ends
    state, with_executor = TaskState[end.state], bool(executor.ends())
    if end.reason == "EXECUTOR_TERMINATED":
        # It may have ended just before, or be DROPPED if its executor ended before its launch.
        if not with_executor or state not in (TaskState.FAILED, TaskState.DROPPED):
            return "its executor has not ended"
        return "it started" if started and state is TaskState.DROPPED else ""
    match state:
        case TaskState.FINISHED | TaskState.FAILED if end.reason == "NONE":
            by_code = "FAILED" if work.code else "FINISHED"
            if (end.state, end.message) != (by_code, str(work.code)):
                return f"it ends with {work.code}"
            return "" if ended else "it did not come to its end"
        case TaskState.KILLED if end.reason == "PREEMPTED":
            return ""
        case TaskState.KILLED if with_executor and _is_asked_to_end(executor):
            return ""
    return "nothing explains that"


def _is_asked_to_end(history: History) -> bool:
    return history.kill_asked or any(end.reason == "PREEMPTED" for end in history.ends())


def _is_end(update: Update) -> bool:
    return TaskState[update.state].is_terminal


def _words(end: Update) -> str:
    code = "" if end.exit_code is None else f" {end.exit_code}"
    return f"{end.state}{code} ({end.reason}, {end.message!r})"
