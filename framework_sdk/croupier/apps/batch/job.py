"""A batch job as its file describes it, with arrays: one task for each value of `{i}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from croupier.apps.job_file.gang_spec import GangSpec
from croupier.apps.job_file.section import Section
from croupier.apps.job_file.task_spec import DEFAULT_TASK, TASK_KEYS, TaskSpec, read_task
from croupier.model.errors import InvalidRequest
from croupier.model.gang import MAX_GANG_TASKS, MAX_RESTARTS
from croupier.model.ids import check_role
from croupier.sdk import Task

MAX_TASKS: Final = 100_000
MAX_VALUE: Final = 100
PLACEHOLDER: Final = "{i}"
_RANGE: Final = re.compile(r"(-?\d{1,12})-(-?\d{1,12})(?::(\d{1,12}))?\Z", re.ASCII)
_FORMS: Final = "a number, a range such as '1-100' or '0-90:10', or a list"
MAX_NAME: Final = 200
_STEP_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_KEYS: Final = ("name", "role", "max_active", "defaults", "tasks")
_GANG_KEYS: Final = ("nodes", "same", "spread", "pack", "restarts")
_STEP_KEYS: Final = (*TASK_KEYS, *_GANG_KEYS, "array", "after", "after_any", "name")


def read_array(section: Section) -> tuple[str, ...] | None:
    """Return the values of `{i}`; None for a task that is no array.

    Raises InvalidRequest if there are none or too many, or one is given twice or cannot be a value.
    """
    value = section.raw("array")
    if "array" not in section:
        return None
    if isinstance(value, str):
        return section.checked(lambda: parse_range(value), "array")
    if isinstance(value, int) and not isinstance(value, bool):
        count = section.whole("array", 0, least=1, most=MAX_TASKS)
        return tuple(map(str, range(count)))
    if not isinstance(value, list):
        raise section.unexpected("array", _FORMS)
    return section.checked(lambda: _listed(value), "array")


def parse_range(text: str) -> tuple[str, ...]:
    """Return the numbers of `FIRST-LAST` or `FIRST-LAST:STEP`, with the last one.

    Raises InvalidRequest if it has another form, or there are none or too many.
    """
    match = _RANGE.match(text.strip())
    if match is None:
        raise InvalidRequest(f"{text[:80]!r} is not {_FORMS}")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step < 1 or last < first:
        raise InvalidRequest(f"{text!r} holds no number")
    if (last - first) // step >= MAX_TASKS:
        raise InvalidRequest(f"{text!r} has more than {MAX_TASKS} values")
    return tuple(map(str, range(first, last + 1, step)))


def _listed(values: list[object]) -> tuple[str, ...]:
    if not 1 <= len(values) <= MAX_TASKS:
        raise InvalidRequest(f"an array has 1 to {MAX_TASKS} values")
    seen: dict[str, None] = {}
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidRequest(f"value {index} is not a text or a number")
        text = str(value)
        if not 1 <= len(text) <= MAX_VALUE or not text.isprintable() or "]" in text:
            raise InvalidRequest(
                f"value {index} is not 1 to {MAX_VALUE} printable characters without ']'"
            )
        if text in seen:
            raise InvalidRequest(f"{text!r} is given twice")
        seen[text] = None
    return tuple(seen)


@dataclass(frozen=True, slots=True)
class Step:
    """A task of the file: one task of the job, or with `values` one for each of them.

    Attributes:
        values: what `{i}` stands for in each task; None for a task that is no array.
        title: shown in lists of the cluster; may hold `{i}`.
        after: tasks that must have succeeded, as `NAME` or `NAME[VALUE]`.
        after_any: tasks that must have ended, in any way.
        gang: as which each of its tasks runs on several agents; None: on one.
    """

    name: str
    spec: TaskSpec
    values: tuple[str, ...] | None = None
    title: str = ""
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    gang: GangSpec | None = None

    @property
    def count(self) -> int:
        """The number of its tasks."""
        return 1 if self.values is None else len(self.values)

    def task_name(self, position: int) -> str:
        """Return the name of one of its tasks, such as `work[3]`."""
        return self.name if self.values is None else f"{self.name}[{self.values[position]}]"

    def filled(self, text: str, position: int) -> str:
        """Return `text` with the task's value in place of `{i}`."""
        return text if self.values is None else text.replace(PLACEHOLDER, self.values[position])

    def task_spec(self, position: int) -> TaskSpec:
        """Return one of its tasks."""
        if self.values is None:
            return self.spec
        return self.spec.with_text(lambda text: self.filled(text, position))

    @property
    def nodes(self) -> int:
        """The number of members of each of its tasks; 1 if it is no gang."""
        return 1 if self.gang is None else self.gang.nodes

    def made(
        self,
        position: int,
        task_ids: Sequence[str],
        title: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> list[Task]:
        """Return what is submitted for one of its tasks: a gang, or the task and those beside it.

        Raises InvalidRequest if no agent can ever run it.
        """
        spec = self.task_spec(position)
        if self.gang is None:
            return spec.tasks(task_ids[0], title, labels)
        return self.gang.tasks(
            lambda rank, more: replace(spec, resources=spec.resources + more).task(
                task_ids[rank], title, labels
            )
        )


@dataclass(frozen=True, slots=True)
class BatchJob:
    """The content of a job file; `most_active` of its tasks at most are queued or run at once."""

    name: str
    steps: tuple[Step, ...]
    role: str = "*"
    most_active: int | None = None

    @property
    def count(self) -> int:
        """The number of tasks."""
        return sum(step.count for step in self.steps)


def batch_of(file: Section, default_name: str) -> BatchJob:
    """Return the job in the root section of a file; raises InvalidRequest if it is invalid."""
    file.check_keys(_KEYS)
    name = file.text("name", default_name)
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise file.error(f"a name has 1 to {MAX_NAME} printable characters", "name")
    given = file.section("defaults")
    defaults = DEFAULT_TASK if given is None else read_task(given, needs_command=False)
    tasks = file.required("tasks")
    job = BatchJob(
        name,
        tuple(_step(section, defaults) for section in tasks.sections()),
        file.parsed("role", check_role, "*"),
        file.whole("max_active", None, least=1, most=MAX_TASKS),
    )
    if not 1 <= job.count <= MAX_TASKS:
        raise tasks.error(f"a job has 1 to {MAX_TASKS} tasks, not {job.count}")
    return job


def _step(section: Section, defaults: TaskSpec) -> Step:
    section.check_keys(_STEP_KEYS)
    if not _STEP_NAME.match(section.name):
        raise section.error("a task's name has 1 to 64 letters, digits, '-' or '_'")
    step = Step(
        section.name,
        read_task(section, defaults, keys_checked=True),
        read_array(section),
        section.text("name", ""),
        section.words("after"),
        section.words("after_any"),
        _gang(section),
    )
    if step.gang is not None and step.spec.beside:
        raise section.error("a task with `nodes` has no tasks beside it")
    task_ids = [f"check-{rank}" for rank in range(step.nodes)]
    for position in {0, step.count - 1}:
        # `{i}` may make a command too long, or an image's name invalid.
        section.checked(lambda at=position: step.made(at, task_ids))  # type: ignore[misc]
    return step


def _gang(section: Section) -> GangSpec | None:
    if "nodes" not in section:
        for key in _GANG_KEYS:
            if key in section:
                raise section.error("needs `nodes`", key)
        return None
    for key in ("same", "spread"):
        if key in section and not section.text(key, ""):
            raise section.error("needs the name of an attribute, or `host`", key)
    return GangSpec(
        section.whole("nodes", 1, least=1, most=MAX_GANG_TASKS),
        section.text("same", ""),
        section.text("spread", ""),
        section.flag("pack", False),
        section.whole("restarts", 0, most=MAX_RESTARTS),
    )
