"""Checks of tasks that are launched or queued together: one alone, or all of a group or a gang.

Rule: of a group or a gang, all tasks are refused or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from croupier.master.core import calls
from croupier.master.core.frameworks import Framework
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, shortened
from croupier.model.gang import check_gang
from croupier.model.task import TaskInfo
from croupier.model.task_group import check_parts
from croupier.model.verdict import TaskVerdict

Named = TaskInfo | calls.MalformedTask
# Raises the error of a task; the others are those of its group that were checked before it.
Check = Callable[[TaskInfo, Sequence[TaskInfo]], None]
# Raises the error of all tasks of a unit together, each of which was checked.
CheckAll = Callable[[Sequence[TaskInfo]], None]


class UnitVerdicts:
    """The verdicts on the tasks of one call."""

    def __init__(self) -> None:
        self.verdicts: list[TaskVerdict] = []
        # Equal errors are shared, since verdicts stay in memory.
        self._shared: dict[tuple[type, str], CroupierError] = {}

    def decide(
        self, framework: Framework, unit: Sequence[Named], check: Check, check_all: CheckAll
    ) -> list[TaskInfo]:
        """Add the verdicts on a task, or on all tasks of a group; return what may be launched."""
        refusals = list(_refusals(framework, unit, check, check_all))
        for task, error in zip(unit, refusals, strict=True):
            if error is not None:
                error = self._shared.setdefault((type(error), str(error)), shortened(error))
            self.verdicts.append(TaskVerdict(task.task_id, error))
        if any(refusals):
            return []
        return [task for task in unit if isinstance(task, TaskInfo)]


def _refusals(
    framework: Framework, unit: Sequence[Named], check: Check, check_all: CheckAll
) -> Iterator[CroupierError | None]:
    """Yield why each task of a unit is refused; None if it is not."""
    errors: list[CroupierError | None] = []
    passed: list[TaskInfo] = []
    for task in unit:
        error = _error_of(task, passed, check)
        errors.append(error)
        if error is None and isinstance(task, TaskInfo):
            passed.append(task)
    if not any(errors):
        errors[0] = _error_of_all(framework, passed, check_all)
    first = next((place for place, error in enumerate(errors) if error is not None), None)
    if first is None:
        yield from errors
        return
    cause = errors[first]
    assert cause is not None
    name, task_id = _name_of(unit), unit[first].task_id[:80]
    for error in errors:
        refused = f"{name} is refused: task {task_id}: {cause}"
        yield error or type(cause)(refused)


def _name_of(unit: Sequence[Named]) -> str:
    is_gang = any(isinstance(task, TaskInfo) and task.gang is not None for task in unit)
    return f"{'gang' if is_gang else 'group'} {unit[0].unit_id[:80]}"


def _error_of(task: Named, passed: Sequence[TaskInfo], check: Check) -> CroupierError | None:
    try:
        if isinstance(task, calls.MalformedTask):
            raise InvalidRequest(task.message)
        if any(task.task_id == other.task_id for other in passed):
            raise InvalidRequest(f"task id {task.task_id} is used twice in {_name_of([task])}")
        check(task, passed)
    except CroupierError as error:
        return error
    return None


def _error_of_all(
    framework: Framework, tasks: Sequence[TaskInfo], check_all: CheckAll
) -> CroupierError | None:
    group_id = tasks[0].group_id
    try:
        if group_id:
            check_parts(group_id, [task.part for task in tasks])
        if group_id in framework.groups:
            raise Conflict(f"the framework has a group {group_id} already; use another id")
        gang = tasks[0].gang
        if gang is not None:
            check_gang([task.gang for task in tasks])
            if gang.gang_id in framework.gangs:
                raise Conflict(f"the framework has a gang {gang.gang_id} already; use another id")
        check_all(tasks)
    except CroupierError as error:
        return error
    return None
