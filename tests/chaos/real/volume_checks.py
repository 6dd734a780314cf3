"""Compare what tasks found in their volumes with who had used these. Pure.

Rule: what a task wrote into a volume is there for the next one, and no task of another framework
sees it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tests.chaos.real.checker import Violation, histories
from tests.chaos.real.journal import Entry
from tests.chaos.real.ledger import Ledger
from tests.chaos.real.work import Work


def check_volumes(
    works: Callable[[str], Work],
    journals: Mapping[str, Sequence[Entry]],
    ran: Ledger,
    excused: Collection[str] = (),
) -> Iterator[Violation]:
    """Yield volumes that lost files, or showed them to others; `excused` tasks had a full disk."""
    users: dict[str, list[str]] = defaultdict(list)
    for framework, entries in journals.items():
        for task_id, history in histories(entries).items():
            volume = works(task_id).volume
            if volume.startswith(f"{framework}-"):
                users[volume].append(task_id)
            elif volume and (history.accepted or task_id in ran.starts):
                yield Violation("volume_of_another", task_id, f"it was accepted for {volume}")
    for volume, tasks in users.items():
        yield from _check_files(volume, tasks, ran, excused)


def _check_files(
    volume: str, users: Sequence[str], ran: Ledger, excused: Collection[str]
) -> Iterator[Violation]:
    told = [task for task in users if task in ran.saw]
    for task_id in told:
        began = ran.lines["start", task_id]
        due = {each for each in told if each == task_id or ran.lines["saw", each] < began}
        found = set(ran.saw[task_id])
        if task_id not in excused and (missing := due - found - set(excused)):
            yield Violation("volume_lost", volume, f"{task_id} did not find {sorted(missing)}")
        if strangers := found - {"", *users}:
            yield Violation("volume_of_another", volume, f"{task_id} found {sorted(strangers)}")
