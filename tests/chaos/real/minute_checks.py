"""Compare the minutes that tasks keep with what was asked: gangs, requeues and devices. Pure.

Rule: the members of a gang are accepted, start and end together. A task has one run at a time. A
part of a device belongs to one task at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf

from tests.chaos.real.checker import History, Violation, histories
from tests.chaos.real.journal import Entry
from tests.chaos.real.ledger import Ledger
from tests.chaos.real.work import Work

# A member that should have ended with its gang has the grace of a kill, and the time in which a
# master and an agent that a fault keeps from each other meet again.
GRACE_S = 3.0
APART_S = 25.0

Works = Callable[[str], Work]
Journals = Mapping[str, Sequence[Entry]]


def check_minutes(works: Works, journals: Journals, ran: Ledger) -> Iterator[Violation]:
    """Yield what is wrong with gangs, with tasks that run again, and with devices."""
    for entries in journals.values():
        known = histories(entries)
        gangs: dict[str, list[str]] = defaultdict(list)
        for task_id in known:
            if works(task_id).gang:
                gangs[works(task_id).gang].append(task_id)
        for members in gangs.values():
            yield from _check_gang([works(each) for each in members], known, ran)
    for task_id in ran.starts:
        yield from _check_runs(works(task_id), ran)
    yield from _check_devices(works, ran)


def _check_gang(
    gang: Sequence[Work], known: Mapping[str, History], ran: Ledger
) -> Iterator[Violation]:
    gang_id = gang[0].gang
    if len({known[each.task_id].accepted for each in gang}) > 1:
        yield Violation("gang_in_part", gang_id, "some of its tasks were accepted")
    told = {each.rank: ran.told[each.task_id] for each in gang if each.task_id in ran.told}
    for rank, each in told.items():
        if (each.rank, each.size) != (str(rank), str(gang[rank].size)):
            yield Violation("gang_rank", gang_id, f"rank {rank} was told {each}")
    # An agent that was unreachable may begin a run before the last ones of the others.
    if len({each.hosts for each in told.values()}) > 1 and not gang[0].restarts:
        yield Violation("gang_rank", gang_id, f"its tasks were told different hosts: {told}")
    moments = _moments(gang, ran)
    for work in gang:
        for began, ended in _runs(work, known[work.task_id], ran):
            late_s = max((ended - at for at in moments if began <= at), default=0.0)
            if late_s > GRACE_S + APART_S:
                yield Violation("gang_half", gang_id, f"{work.task_id} ended {late_s:.1f} s later")


def _moments(gang: Sequence[Work], ran: Ledger) -> list[float]:
    """Return when the members that have begun could not run as a whole any more."""
    began = [ran.notes["began", each.task_id] for each in gang]
    moments = [at for each in gang if each.ends_gang for at in ran.notes["done", each.task_id]]
    if any(began) and not all(began) and not gang[0].restarts:
        moments.append(min(times[0] for times in began if times))
    return moments


def _runs(work: Work, history: History, ran: Ledger) -> Iterator[tuple[float, float]]:
    """Yield when each run of a member began and ended, if it is known.

    The end of the last one is known from its report if it was killed with SIGKILL.
    """
    began = ran.notes["began", work.task_id]
    noted = sorted(ran.notes["done", work.task_id] + ran.notes["stopped", work.task_id])
    told = [end.time_s for end in history.ends()]
    for at, following in pairwise([*began, inf]):
        ends = [end for end in noted if at <= end < following]
        if following == inf:
            ends += told
        if ends:
            yield at, ends[0]


def _check_runs(work: Work, ran: Ledger) -> Iterator[Violation]:
    task_id = work.task_id
    if ran.notes["twice", task_id]:
        yield Violation("ran_twice", task_id, "at the same time")
    runs, saved = len(ran.starts[task_id]), len(ran.notes["saved", task_id])
    if work.gang and runs - 1 > work.restarts:
        yield Violation("ran_twice", task_id, f"{runs} runs, with {work.restarts} restarts")
    if not work.is_requeued:
        return
    if runs - 1 > saved:
        yield Violation("ran_twice", task_id, f"{runs} runs, of which {saved} were to be saved")
    if len(ran.notes["stopped", task_id]) > saved:
        yield Violation("not_saved", task_id, "it was stopped without the signal to save its state")


def _check_devices(works: Works, ran: Ledger) -> Iterator[Violation]:
    """Yield devices of which tasks had more than there is; of tasks that came to their end."""
    moments: list[tuple[float, int, str]] = []
    for task_id, told in ran.told.items():
        due, had = works(task_id).gpus, sum(map(float, _words(told.parts)))
        if had != due:
            yield Violation("device_part", task_id, f"it has {had} devices, and asked for {due}")
        began, done = ran.notes["began", task_id], ran.notes["done", task_id]
        if due and done:
            moments += [(began[0], 1, task_id), (done[0], -1, task_id)]
    used: Counter[str] = Counter()
    # What ends at a time ends first.
    for _, change, task_id in sorted(moments):
        told = ran.told[task_id]
        for device, part in zip(_words(told.devices), _words(told.parts), strict=True):
            used[device] += round(change * float(part) * 1000)
            if used[device] > 1000:
                yield Violation("device_twice", device, f"{used[device]} thousandths, by {task_id}")


def _words(text: str) -> list[str]:
    return [] if text == "-" else text.split(",")


def count_minutes(ran: Ledger) -> Counter[str]:
    """Return how many tasks kept minutes of what."""
    told = ran.told.values()
    return Counter(
        {
            "members of gangs": sum(each.rank != "-" for each in told),
            "tasks with devices": sum(each.devices != "-" for each in told),
            "further runs": sum(
                len(runs) - 1 for task_id, runs in ran.starts.items() if task_id in ran.told
            ),
        }
    )
